use super::*;
use crate::record::{Attempt, AttemptId, Metric, Outcome, Parts, Run};
use proptest::prelude::*;

/// Made with `ssh-keygen -t ed25519 -N "" -C test`. It protects nothing.
const KEY: &str = include_str!("../../../tests/golden/keys/ed25519");
const PUBLIC: &str = include_str!("../../../tests/golden/keys/ed25519.pub");
const LOCKED: &str = include_str!("../../../tests/golden/keys/locked");
const OTHER: &str = include_str!("../../../tests/golden/keys/ecdsa");
/// Made with `ssh-keygen -Y sign -n ledger-head -f ed25519`, for the text below.
const SIGNATURE: &str = include_str!("../../../tests/golden/keys/statement.sig");
const STATEMENT: &str = include_str!("../../../tests/golden/keys/statement");

fn sealed() -> Sealed {
    let run = Run::new(Parts {
        config: Value::Table([("model.name".to_owned(), "linear".into())].into()),
        seed: u64::MAX,
        ..Parts::sample()
    });
    let attempt = Attempt {
        run: run.id,
        metrics: [("loss".to_owned(), Metric::new(0.5, ""))].into(),
        digests: [("weights".to_owned(), Digest([2; 32])), ("data".to_owned(), Digest([3; 32]))].into(),
        facts: [("git.commit".to_owned(), "abc".into())].into(),
        ..Attempt::sample()
    };
    Sealed { run, attempt, series: Vec::new(), phases: Vec::new() }
}

#[test]
fn signatures_of_ssh_keygen_are_accepted_and_reproduced_bit_for_bit() {
    let verifier = Verifier::read(PUBLIC).unwrap();
    verifier.check(STATEMENT, SIGNATURE).unwrap();
    let signer = Signer::read(KEY.as_bytes()).unwrap();
    // Ed25519 is deterministic: the signature of a text is always the same.
    assert_eq!(signer.sign(STATEMENT).unwrap().trim(), SIGNATURE.trim());
    assert_eq!(signer.fingerprint(), verifier.fingerprint());
    assert!(matches!(verifier.check(&STATEMENT.replace("entries 3", "entries 4"), SIGNATURE), Err(AttestError::Wrong)));
    assert!(matches!(verifier.check(STATEMENT, "no signature"), Err(AttestError::Form(_))));
    assert_eq!(Head::read(STATEMENT).unwrap(), Head { digest: Digest([0x11; 32]), entries: 3 });
}

#[test]
fn keys_of_other_kinds_and_protected_ones_are_refused() {
    assert!(matches!(Signer::read(LOCKED.as_bytes()), Err(AttestError::Locked)));
    assert!(matches!(Signer::read(OTHER.as_bytes()), Err(AttestError::Kind(_) | AttestError::NoKey(_))));
    assert!(matches!(Signer::read(b"hello"), Err(AttestError::NoKey(_))));
    assert!(matches!(Verifier::read("ssh-ed25519 AAAA"), Err(AttestError::NoKey(_))));
}

#[test]
fn an_envelope_holds_the_statement_that_was_signed() {
    let (signer, verifier) = (Signer::read(KEY.as_bytes()).unwrap(), Verifier::read(PUBLIC).unwrap());
    let sealed = sealed();
    let text = statement(&sealed, ("2026-11-22T08:00:00Z", "2026-11-22T08:01:00Z"));
    let envelope = signer.envelope(&text).unwrap();
    assert_eq!(verifier.open(&envelope).unwrap(), text);
    assert_eq!(AttemptId(subject(&text).unwrap()), sealed.attempt.id());
    let value = from_json(&text).unwrap().flatten();
    assert_eq!(value["_type"], STATEMENT_TYPE.into());
    assert_eq!(value["predicate.buildDefinition.externalParameters.seed"], u64::MAX.to_string().into());
    // The encoding that is signed, with the example of DSSE's specification.
    assert_eq!(
        pre_authentication_encoding("http://example.com/HelloWorld", b"hello world"),
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    );
    let other = envelope.replace("\"payload\": \"", "\"payload\": \"AAAA");
    assert!(matches!(verifier.open(&other), Err(AttestError::Wrong)));
    assert!(subject("{}").is_err() && verifier.open("{}").is_err() && verifier.open("[").is_err());
}

#[test]
fn a_statement_has_the_outcome_and_labels_no_foreign_digest_as_blake3() {
    let told = |sealed: &Sealed| from_json(&statement(sealed, ("", ""))).unwrap();
    let names = |statement: &Value, list: &str| -> Vec<String> {
        let mut value = statement;
        for step in list.split('.') {
            value = &value.as_table().unwrap()[step];
        }
        let Value::List(items) = value else { panic!("{value}") };
        items.iter().map(|item| item.as_table().unwrap()["name"].to_string()).collect()
    };
    let annotations = |statement: &Value| -> Table {
        let details = statement.as_table().unwrap()["predicate"].as_table().unwrap()["runDetails"].clone();
        let Value::List(byproducts) = &details.as_table().unwrap()["byproducts"] else { panic!("{details}") };
        byproducts[0].as_table().unwrap()["annotations"].flatten()
    };
    let trained = told(&sealed());
    assert_eq!(names(&trained, "subject")[1..], ["weights"]);
    assert_eq!(names(&trained, "predicate.buildDefinition.resolvedDependencies")[0], "data");
    let told_of = annotations(&trained);
    assert_eq!((&told_of["outcome"], &told_of["metrics.loss.value"]), (&"finished".into(), &0.5.into()));

    let mut other = sealed();
    let command: Table = [("command".to_owned(), vec!["sh"].into())].into();
    other.run = Run::new(Parts { program: command.into(), ..other.run.parts.clone() });
    other.attempt.run = other.run.id;
    other.attempt.outcome = Outcome::Failed { reason: "no memory".to_owned() };
    other.attempt.facts.insert(Attempt::DISTURBED.to_owned(), vec!["throttled"].into());
    let statement = told(&other);
    assert_eq!(names(&statement, "subject").len(), 1, "{statement}");
    let dependencies = names(&statement, "predicate.buildDefinition.resolvedDependencies");
    assert_eq!(dependencies, ["repository of the manifest"]);
    let told_of = annotations(&statement);
    assert_eq!((&told_of["outcome"], &told_of["reason"]), (&"failed".into(), &"no memory".into()));
    assert_eq!(told_of["tainted"], vec!["throttled"].into());
    assert_eq!(told_of["digests.weights"], Digest([2; 32]).to_string().into());
}

proptest! {
    #[test]
    fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,120}") {
        let verifier = Verifier::read(PUBLIC).unwrap();
        prop_assert!(Signer::read(&bytes).is_err() && Verifier::read(&text).is_err());
        prop_assert!(verifier.check(&text, &text).is_err() && verifier.open(&text).is_err());
        prop_assert!(Head::read(&text).is_err() && subject(&text).is_err());
    }
}
