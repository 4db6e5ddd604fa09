//! The metadata of an image that a record stores.

use crate::host::sif::Sif;
use crate::host::{environment, secrets};
use crate::record::Table;
use crate::wire::from_json;

/// The longest text of an image in a record, in characters.
pub(super) const MOST_TEXT: usize = 16 << 10;
/// The longest value of a label, in characters.
pub(super) const MOST_LABEL: usize = 512;
/// The longest name of a label, in bytes.
pub(super) const MOST_NAME: usize = 200;
/// The largest number of labels.
pub(super) const MOST_LABELS: usize = 64;

/// A text without its secrets, cut off after `most` characters.
pub(super) fn short(text: &str, most: usize) -> String {
    let (clean, _) = secrets::redact(text.as_bytes());
    let clean = String::from_utf8_lossy(&clean);
    let kept: String = clean.chars().take(most).collect();
    if kept.len() < clean.len() { format!("{kept}…") } else { kept }
}

/// The labels of an image by name.
pub(super) fn labels(sif: &Sif) -> Table {
    let mut found = Table::new();
    for document in sif.documents.iter().filter_map(|text| from_json(text).ok()) {
        let flat = document.flatten();
        // Apptainer's document has the labels in `data.attributes.labels`, an OCI configuration in `config.Labels`.
        for (name, value) in flat {
            let label =
                ["data.attributes.labels.", "config.Labels."].iter().find_map(|before| name.strip_prefix(before));
            if let (Some(label), Some(text)) = (label.filter(|label| label.len() <= MOST_NAME), value.as_str())
                && found.len() < MOST_LABELS
            {
                let text = if environment::is_secret(label) {
                    environment::REDACTED.to_owned()
                } else {
                    short(text, MOST_LABEL)
                };
                found.insert(label.to_owned(), environment::without_credentials(&text).into());
            }
        }
    }
    found
}

/// The digest of the OCI image that an image was made from, if a label or the definition's `From:` has it.
pub(super) fn oci_digest(labels: &Table, definition: Option<&str>) -> Option<String> {
    const LABELS: [&str; 3] = [
        "org.opencontainers.image.base.digest",
        "org.label-schema.usage.singularity.deffile.from",
        "org.label-schema.usage.apptainer.deffile.from",
    ];
    let of_labels = LABELS.iter().filter_map(|name| labels.get(*name)?.as_str());
    let from = definition.unwrap_or_default().lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case("from").then_some(value)
    });
    of_labels.chain(from).find_map(digest_in).map(str::to_owned)
}

/// A digest, `sha256:` and 64 digits, at the beginning of a text or after an `@`.
fn digest_in(text: &str) -> Option<&str> {
    let text = text.trim();
    let digest = text.rsplit_once('@').map_or(text, |(_, digest)| digest);
    let digits = digest.strip_prefix("sha256:")?;
    (digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digest)
}
