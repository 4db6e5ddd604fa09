//! `ledger attest`

use super::context::{self, Context, read_file, write_new};
use super::draft::{Draft, unwritten};
use super::failure::{Failure, exit};
use crate::host::clock;
use crate::interop::attest::{AttestError, Head, Signer, statement};
use crate::report::{count, table_of, timestamp};
use std::io::{Error, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Sign the log's head, or the provenance of one attempt, with an Ed25519 key of `ssh-keygen`
///
/// Without an ID, ledger writes a statement of the log's head to FILE and its signature to FILE.sig, as `ssh-keygen
/// -Y sign` does. `ledger verify --attested FILE --key KEY.pub` then checks that the ledger still holds the same
/// content, unchanged. With an ID, ledger writes the attempt's provenance as an in-toto Statement in a DSSE
/// envelope.
///
/// Example: ledger attest --key ~/.ssh/id_ed25519 -o 2026-11.head
///
/// Example: ledger attest latest --key ~/.ssh/id_ed25519 -o run.intoto.json
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    id: Option<String>,

    /// The private key, which must have no passphrase
    #[arg(long, value_name = "FILE", required_unless_present = "statement")]
    key: Option<PathBuf>,

    /// Write only the statement, to sign it with another tool
    #[arg(long, conflicts_with = "key")]
    statement: bool,

    /// The file, which must not exist yet
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let signer = args.key.as_deref().map(signer).transpose()?;
    let (text, about, is_envelope) = match &args.id {
        Some(id) => {
            let (id, sealed) = context.store().read(|reader| context::resolve_attempt(reader, id))??;
            let started = sealed.attempt.started_unix_ms;
            let wall_ms = i64::try_from(sealed.attempt.wall_ns / 1_000_000).unwrap_or(i64::MAX);
            let times = (timestamp(started), timestamp(started.saturating_add(wall_ms)));
            (statement(&sealed, (&times.0, &times.1)), format!("attempt {}", id.0.prefix(8)), true)
        }
        None => {
            let head =
                context.store().read(|reader| Ok(Head { digest: reader.log_head()?, entries: reader.log_len()? }))?;
            let about = format!("head {} of {}", head.digest.prefix(8), count(head.entries, "log entry"));
            (head.statement(&timestamp(clock::unix_ms())), about, false)
        }
    };
    let failed = |error: AttestError| Failure::new(exit::USAGE, error);
    let mut files = vec![args.output.clone()];
    match &signer {
        Some(signer) if is_envelope => {
            write_new(&args.output, signer.envelope(&text).map_err(failed)?.as_bytes())?;
        }
        Some(signer) => {
            let signature = signer.sign(&text).map_err(failed)?;
            let beside = beside(&args.output);
            write_both((&args.output, &text), (&beside, &signature), signer)?;
            files.push(beside);
        }
        None => write_new(&args.output, text.as_bytes())?,
    }
    let by = signer.as_ref().map_or_else(String::new, Signer::fingerprint);
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    context.answer(
        || match by.as_str() {
            "" => format!("{}: {about}, not signed\n", names.join(", ")),
            by => format!("{}: {about}, signed by {by}\n", names.join(", ")),
        },
        || table_of([("about", about.as_str().into()), ("key", by.as_str().into()), ("files", names.clone().into())]),
    )?;
    Ok(exit::YES)
}

/// Writes a statement and its signature. The signature is renamed into place first, so that no statement exists without
/// one. A signature that this key left without its statement is replaced.
fn write_both(statement: (&Path, &str), signature: (&Path, &str), signer: &Signer) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: Error| unwritten(&path, &error, "choose another name with -o")
    };
    let written = |path: &Path, text: &str, draft: Result<Draft, Error>| {
        let write = || {
            let draft = draft?;
            draft.held().write_all(text.as_bytes())?;
            draft.held().sync_all()?;
            Ok::<_, Error>(draft)
        };
        write().map_err(failed(path))
    };
    let whole = written(statement.0, statement.1, Draft::file(statement.0))?;
    // The statement does not exist yet, so nothing needs a signature left by an interrupted attestation.
    let is_left = std::fs::read_to_string(signature.0).is_ok_and(|left| signer.made(&left));
    let draft = if is_left { Draft::replacing(signature.0) } else { Draft::file(signature.0) };
    let signed = written(signature.0, signature.1, draft)?;
    let named = if is_left { signed.finish_by(|from, to| std::fs::rename(from, to)) } else { signed.finish() };
    named.map_err(failed(signature.0))?;
    whole.finish().map_err(|error| {
        // Another process created the statement first; this signature does not belong to it.
        let _ = std::fs::remove_file(signature.0);
        failed(statement.0)(error)
    })
}

/// Returns the path of a file's signature.
pub(super) fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

fn signer(path: &Path) -> Result<Signer, Failure> {
    let mode = std::fs::metadata(path).map(|found| found.mode()).unwrap_or_default();
    if mode & 0o077 != 0 {
        let (path, mode) = (path.display(), mode & 0o777);
        let text = format!("`{path}`: other users may read or change this key (mode {mode:04o}; `chmod 600 {path}`)");
        return Err(Failure::new(exit::USAGE, text));
    }
    let text = read_file(path)?;
    Signer::read(&text).map_err(|error| Failure::new(exit::USAGE, format!("`{}`: {error}", path.display())))
}
