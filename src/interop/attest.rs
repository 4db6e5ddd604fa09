//! Signatures with Ed25519 keys of `ssh-keygen`: of the log's head, in the format that `ssh-keygen -Y verify` reads,
//! and of one attempt, as an in-toto Statement in a DSSE envelope.
//!
//! Knows keys and records as bytes. Must not know where either is stored.
//!
//! Formats: OpenSSH's PROTOCOL.sshsig; in-toto Attestation Framework v1, Statement; SLSA Provenance v1; DSSE v1.0.

use crate::record::{Attempt, Digest, Part, Sealed, Table, Value};
use crate::wire::{from_json, to_json_line, to_json_text};
use base64ct::{Base64, Encoding};
use ssh_key::{Algorithm, HashAlg, LineEnding, PrivateKey, PublicKey, SshSig};
use std::collections::BTreeMap;

/// The namespace of a head's signature, which `ssh-keygen -Y verify -n` needs.
pub const NAMESPACE: &str = "ledger-head";

const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
/// The meaning of the provenance's parameters.
const BUILD_TYPE: &str = "urn:ledger:run:v1";

/// A key or a signature that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AttestError {
    /// It is not a key in OpenSSH's format.
    #[error("it is not an OpenSSH key: {0}")]
    NoKey(ssh_key::Error),
    /// The key has another type.
    #[error("it is a key of type {0}, but only Ed25519 is accepted (`ssh-keygen -t ed25519` makes one)")]
    Kind(String),
    /// A passphrase protects it.
    #[error(
        "a passphrase protects it (write the statement with --statement, and sign it by `ssh-keygen -Y sign -n {NAMESPACE} -f KEY FILE`)"
    )]
    Locked,
    /// The key could not sign.
    #[error("it cannot sign: {0}")]
    Sign(ssh_key::Error),
    /// A file does not have the expected format.
    #[error("it has a wrong format: {0}")]
    Form(String),
    /// The signature is from another key, or for another text.
    #[error("the signature is from another key, or for another text")]
    Wrong,
}

/// A private key.
pub struct Signer(PrivateKey);

impl Signer {
    /// Reads a private key as `ssh-keygen` writes it.
    ///
    /// # Errors
    /// If it is not a private key, is not Ed25519, or is protected by a passphrase.
    pub fn read(text: &[u8]) -> Result<Self, AttestError> {
        let key = PrivateKey::from_openssh(text).map_err(AttestError::NoKey)?;
        if key.algorithm() != Algorithm::Ed25519 {
            return Err(AttestError::Kind(key.algorithm().to_string()));
        }
        if key.is_encrypted() { Err(AttestError::Locked) } else { Ok(Self(key)) }
    }

    /// The key's fingerprint, as `ssh-keygen -l` shows it.
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Returns the signature of a text, as `ssh-keygen -Y sign` writes it.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub fn sign(&self, text: &str) -> Result<String, AttestError> {
        let signature = self.0.sign(NAMESPACE, HashAlg::Sha512, text.as_bytes()).map_err(AttestError::Sign)?;
        signature.to_pem(LineEnding::LF).map_err(AttestError::Sign)
    }

    /// Whether this key made a signature of a log's head, for any text.
    pub fn made(&self, signature: &str) -> bool {
        SshSig::from_pem(signature)
            .is_ok_and(|made| made.namespace() == NAMESPACE && made.public_key() == self.0.public_key().key_data())
    }

    /// Returns a statement in a DSSE envelope, as JSON.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub fn envelope(&self, statement: &str) -> Result<String, AttestError> {
        let signed = pre_authentication_encoding(PAYLOAD_TYPE, statement.as_bytes());
        let signature =
            signature::Signer::try_sign(&self.0, &signed).map_err(|error| AttestError::Sign(error.into()))?;
        let one: Table = [
            ("keyid".to_owned(), self.fingerprint().into()),
            ("sig".to_owned(), Base64::encode_string(signature.as_bytes()).into()),
        ]
        .into();
        let envelope: Table = [
            ("payloadType".to_owned(), PAYLOAD_TYPE.into()),
            ("payload".to_owned(), Base64::encode_string(statement.as_bytes()).into()),
            ("signatures".to_owned(), Value::List(vec![one.into()])),
        ]
        .into();
        Ok(to_json_text(&envelope.into()))
    }
}

/// A public key.
pub struct Verifier(PublicKey);

impl Verifier {
    /// Reads a public key as `ssh-keygen` writes it.
    ///
    /// # Errors
    /// If it is not a public key, or not Ed25519.
    pub fn read(text: &str) -> Result<Self, AttestError> {
        let key = PublicKey::from_openssh(text.trim()).map_err(AttestError::NoKey)?;
        match key.algorithm() {
            Algorithm::Ed25519 => Ok(Self(key)),
            other => Err(AttestError::Kind(other.to_string())),
        }
    }

    /// The key's fingerprint.
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Checks the signature of a text.
    ///
    /// # Errors
    /// If it is not a signature, or not one by this key of this text in [`NAMESPACE`].
    pub fn check(&self, text: &str, signature: &str) -> Result<(), AttestError> {
        let signature = SshSig::from_pem(signature).map_err(|error| AttestError::Form(error.to_string()))?;
        self.0.verify(NAMESPACE, text.as_bytes(), &signature).map_err(|_| AttestError::Wrong)
    }

    /// Checks an envelope and returns the statement in it.
    ///
    /// # Errors
    /// If it is not an envelope, or contains no signature by this key.
    pub fn open(&self, envelope: &str) -> Result<String, AttestError> {
        let form = |what: &str| AttestError::Form(what.to_owned());
        let envelope = from_json(envelope).map_err(|error| AttestError::Form(error.to_string()))?;
        let envelope = envelope.as_table().ok_or_else(|| form("it is not a JSON object"))?;
        let text = |name: &str| envelope.get(name).and_then(Value::as_str);
        if text("payloadType") != Some(PAYLOAD_TYPE) {
            return Err(form("its `payloadType` is not that of in-toto"));
        }
        let payload = text("payload").ok_or_else(|| form("it has no `payload`"))?;
        let payload = Base64::decode_vec(payload).map_err(|_| form("its `payload` is not Base64"))?;
        let signed = pre_authentication_encoding(PAYLOAD_TYPE, &payload);
        let Some(Value::List(signatures)) = envelope.get("signatures") else {
            return Err(form("it has no `signatures`"));
        };
        let is_mine = |one: &Value| {
            let bytes = one.as_table().and_then(|one| one.get("sig")).and_then(Value::as_str);
            let bytes = bytes.and_then(|bytes| Base64::decode_vec(bytes).ok());
            let signature = bytes.and_then(|bytes| ssh_key::Signature::new(Algorithm::Ed25519, bytes).ok());
            signature
                .is_some_and(|signature| signature::Verifier::verify(self.0.key_data(), &signed, &signature).is_ok())
        };
        if !signatures.iter().any(is_mine) {
            return Err(AttestError::Wrong);
        }
        String::from_utf8(payload).map_err(|_| form("its `payload` is not text"))
    }
}

/// Returns the bytes that DSSE signs: `DSSEv1`, then the type and the body, each after its length.
fn pre_authentication_encoding(payload_type: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), body.len());
    [head.as_bytes(), body].concat()
}

/// The head of a log after a number of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The chain's digest.
    pub digest: Digest,
    /// The number of entries that it covers.
    pub entries: u64,
}

impl Head {
    /// Returns the text to sign. `time` is included unchanged.
    pub fn statement(&self, time: &str) -> String {
        format!("ledger log head v1\nhead {}\nentries {}\ntime {time}\n", self.digest, self.entries)
    }

    /// Reads a statement.
    ///
    /// # Errors
    /// If it is not a statement of a log's head.
    pub fn read(statement: &str) -> Result<Self, AttestError> {
        let form = || AttestError::Form("it is not a statement of a log's head".to_owned());
        let mut lines = statement.lines();
        if lines.next() != Some("ledger log head v1") {
            return Err(form());
        }
        let mut field = |name: &str| lines.next().and_then(|line| line.strip_prefix(name)).map(str::trim);
        let digest = field("head ").and_then(|text| text.parse().ok()).ok_or_else(form)?;
        let entries = field("entries ").and_then(|text| text.parse().ok()).ok_or_else(form)?;
        Ok(Self { digest, entries })
    }
}

/// Returns an in-toto Statement about an attempt, with SLSA Provenance. `times` are its start and end in the format of RFC 3339.
pub fn statement(sealed: &Sealed, times: (&str, &str)) -> String {
    let Sealed { run, attempt, .. } = sealed;
    let table = |pairs: Vec<(&str, Value)>| -> Value {
        Value::Table(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let of_digest = |digest: &Digest| table(vec![("blake3", digest.to_string().into())]);
    let id = attempt.id();
    let mut subjects = vec![table(vec![("name", format!("ledger attempt {id}").into()), ("digest", of_digest(&id.0))])];
    // The digest algorithm of another program is unknown.
    let is_program = run.parts.program.as_table().is_some_and(|program| program.contains_key("command"));
    let known = if is_program { &BTreeMap::new() } else { &attempt.digests };
    let products = known.iter().filter(|(name, _)| *name != "data");
    subjects.extend(
        products.map(|(name, digest)| table(vec![("name", name.as_str().into()), ("digest", of_digest(digest))])),
    );
    let mut materials = Vec::new();
    if let Some(digest) = known.get("data") {
        materials.push(table(vec![("name", "data".into()), ("digest", of_digest(digest))]));
    }
    let fact = |name: &str| attempt.facts.get(name).and_then(Value::as_str);
    if let Some(commit) = fact("git.commit") {
        let digest = table(vec![("gitCommit", commit.into())]);
        materials.push(table(vec![("name", "repository of the manifest".into()), ("digest", digest)]));
    }
    for (name, digest) in crate::record::SourceText::named_by(&attempt.settings, &attempt.facts) {
        materials.push(table(vec![("name", name.into()), ("digest", of_digest(&digest))]));
    }
    let parts = [Part::Program, Part::Container, Part::Cuda, Part::Driver, Part::Device];
    let internal = parts.map(|part| (part.name().to_owned(), run.parts.value(part)));
    let definition = table(vec![
        ("buildType", BUILD_TYPE.into()),
        (
            "externalParameters",
            table(vec![("config", run.parts.config.clone()), ("seed", run.parts.seed.to_string().into())]),
        ),
        ("internalParameters", Value::Table(internal.into())),
        ("resolvedDependencies", Value::List(materials)),
    ]);
    let builder = format!(
        "urn:ledger:{}:{}",
        fact("ledger.version").unwrap_or("unknown"),
        fact("host.name").unwrap_or("unknown")
    );
    let record = table(vec![
        ("name", "record of the attempt".into()),
        ("digest", of_digest(&id.0)),
        ("annotations", outcome(attempt)),
    ]);
    let details = table(vec![
        ("builder", table(vec![("id", builder.into())])),
        (
            "metadata",
            table(vec![
                ("invocationId", format!("urn:ledger:run:{}", run.id).into()),
                ("startedOn", times.0.into()),
                ("finishedOn", times.1.into()),
            ]),
        ),
        ("byproducts", Value::List(vec![record])),
    ]);
    let statement = table(vec![
        ("_type", STATEMENT_TYPE.into()),
        ("subject", Value::List(subjects)),
        ("predicateType", PREDICATE_TYPE.into()),
        ("predicate", table(vec![("buildDefinition", definition), ("runDetails", details)])),
    ]);
    to_json_line(&statement)
}

/// Returns how an attempt ended, its taints, its metrics, and its digests as recorded.
fn outcome(attempt: &Attempt) -> Value {
    let mut all: Table =
        [("outcome".to_owned(), attempt.outcome.name().into()), ("tainted".to_owned(), attempt.all_taints().into())]
            .into();
    all.extend(attempt.outcome.reason().map(|reason| ("reason".to_owned(), reason.into())));
    let metrics = attempt.metrics.iter().filter_map(|(name, metric)| {
        let pairs = [("value".to_owned(), metric.value?.into()), ("unit".to_owned(), metric.unit.as_str().into())];
        Some((name.clone(), Value::Table(pairs.into())))
    });
    all.insert("metrics".to_owned(), Value::Table(metrics.collect()));
    let digests = attempt.digests.iter().map(|(name, digest)| (name.clone(), digest.to_string().into()));
    all.insert("digests".to_owned(), Value::Table(digests.collect()));
    all.into()
}

/// Returns the attempt that a statement is about.
///
/// # Errors
/// If it is not a Statement about an attempt.
pub fn subject(statement: &str) -> Result<Digest, AttestError> {
    let form = || AttestError::Form("it is not an in-toto Statement about an attempt".to_owned());
    let value = from_json(statement).map_err(|error| AttestError::Form(error.to_string()))?;
    let table = value.as_table().ok_or_else(form)?;
    if table.get("_type").and_then(Value::as_str) != Some(STATEMENT_TYPE) {
        return Err(form());
    }
    let Some(Value::List(subjects)) = table.get("subject") else { return Err(form()) };
    let digest = subjects.iter().find_map(|one| {
        let one = one.as_table()?;
        one.get("name")?.as_str()?.strip_prefix("ledger attempt ")?;
        one.get("digest")?.as_table()?.get("blake3")?.as_str()?.parse().ok()
    });
    digest.ok_or_else(form)
}

#[cfg(test)]
mod tests;
