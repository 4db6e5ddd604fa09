use super::*;
use crate::record::{Event, EventKind, Outcome, Owner, Parts, Run, Table};
use proptest::prelude::*;

fn run() -> Run {
    Run::new(Parts::sample())
}

fn opened() -> Entry {
    Entry::Opened {
        owner: Owner { host: "h".into(), boot_id: "b".into(), pid: 1, start_ticks: 2 },
        nonce: Nonce([7; 16]),
        run: Box::new(run()),
        settings: Table::new(),
        facts: Table::new(),
        started_unix_ms: 3,
        started_ns: 4,
    }
}

fn step(step: u64) -> Entry {
    let kind = EventKind::Step { step, duration_ns: Some(9), values: vec![("loss".into(), 0.5)] };
    Entry::Event(Event { t_ns: step, rank: 0, kind })
}

fn written(entries: &[Entry]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path(), run().id, Nonce([7; 16]), &opened()).unwrap();
    entries.iter().for_each(|entry| writer.append(entry).unwrap());
    writer.sync().unwrap();
    let path = writer.path().to_owned();
    (dir, path)
}

#[test]
fn entries_are_read_back_as_they_were_written() {
    let ended = Entry::Ended { outcome: Outcome::Finished, exit: None, ended_ns: 9, cpu_ns: Some(1) };
    let (dir, path) = written(&[step(1), Entry::Stderr("x".into()), ended.clone()]);
    let contents = read(&path).unwrap();
    assert_eq!(contents.entries, [opened(), step(1), Entry::Stderr("x".into()), ended]);
    assert_eq!(contents.torn_bytes, 0);
    assert_eq!(list(dir.path()).unwrap(), std::slice::from_ref(&path));
    discard(&path).unwrap();
    discard(&path).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(list(dir.path()).unwrap().is_empty());
    assert!(list(&dir.path().join("absent")).unwrap().is_empty());
}

#[test]
fn a_torn_tail_loses_only_itself() {
    let (_dir, path) = written(&[step(1), step(2)]);
    let bytes = std::fs::read(&path).unwrap();
    let mut seen = Vec::new();
    for cut in 0..=bytes.len() {
        let contents = parse(&bytes[..cut]);
        let all = [opened(), step(1), step(2)];
        assert_eq!(contents.entries, all[..contents.entries.len()]);
        let used = cut - usize::try_from(contents.torn_bytes).unwrap();
        assert!(parse(&bytes[..used.max(8).min(cut)]).entries.len() == contents.entries.len());
        seen.push(contents.entries.len());
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let mut scanned = Vec::new();
        let torn_bytes = scan(&path, |entry| scanned.push(entry)).unwrap();
        assert_eq!(Contents { entries: scanned, torn_bytes }, contents);
    }
    assert_eq!(seen.last(), Some(&3));
    assert!(seen.is_sorted());
}

#[test]
fn a_length_that_is_only_declared_takes_no_memory() {
    let good = [MAGIC.as_slice(), &framed(&encode_entry(&opened()).unwrap())].concat();
    for len in [u32::MAX, 1 << 31, u32::try_from(MAX_FRAME_BYTES).unwrap() + 1, u32::try_from(MAX_FRAME_BYTES).unwrap()]
    {
        let contents = parse(&[good.as_slice(), &len.to_le_bytes(), &[0; 60]].concat());
        assert_eq!((contents.entries.len(), contents.torn_bytes), (1, 64), "{len}");
    }
    // A whole frame with a text that declares a length of 2^60 bytes.
    for kind in 0..20 {
        let body = [vec![kind], vec![253], (1u64 << 60).to_le_bytes().to_vec()].concat();
        let contents = parse(&[good.as_slice(), &framed(&body)].concat());
        assert!(contents.entries.len() <= 2, "{kind}");
    }
}

fn framed(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap();
    [len.to_le_bytes().as_slice(), &crc32c::crc32c(body).to_le_bytes(), body].concat()
}

#[test]
fn a_journal_of_a_newer_ledger_is_refused() {
    let (_dir, path) = written(&[]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[7] = 2;
    std::fs::write(&path, bytes).unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("use a newer ledger"));
}

#[test]
fn the_last_entry_replaces_a_partly_written_frame() {
    let (dir, _path) = written(&[]);
    let mut writer = Writer::create(dir.path(), run().id, Nonce([8; 16]), &opened()).unwrap();
    writer.append(&step(1)).unwrap();
    writer.flush().unwrap();
    OpenOptions::new().append(true).open(writer.path()).unwrap().write_all(b"half a fra").unwrap();
    writer.append(&step(2)).unwrap();
    let ended =
        Entry::Ended { outcome: Outcome::Failed { reason: "full".into() }, exit: None, ended_ns: 9, cpu_ns: None };
    writer.end_after_fault(&ended).unwrap();
    let contents = read(writer.path()).unwrap();
    assert_eq!(contents, Contents { entries: vec![opened(), step(1), ended], torn_bytes: 0 });
}

#[test]
fn a_journal_is_held_for_as_long_as_its_writer_lives() {
    let (dir, path) = written(&[]);
    assert!(!is_held(&path).unwrap());
    let writer = Writer::create(dir.path(), run().id, Nonce([9; 16]), &opened()).unwrap();
    let path = writer.path().to_owned();
    assert!(is_held(&path).unwrap());
    // A process that was just forked has the file open too.
    let _open_elsewhere = writer.file.try_clone().unwrap();
    drop(writer);
    assert!(!is_held(&path).unwrap());
    let aside = set_aside(&path).unwrap();
    assert!(aside.exists() && !list(dir.path()).unwrap().contains(&path));
}

#[test]
fn a_second_journal_of_one_nonce_is_refused() {
    let (dir, _path) = written(&[]);
    assert!(Writer::create(dir.path(), run().id, Nonce([7; 16]), &opened()).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse(&bytes);
        let framed: Vec<u8> = MAGIC.iter().copied().chain(bytes).collect();
        parse(&framed);
    }

    #[test]
    fn a_flipped_bit_never_changes_an_entry(at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let (_dir, path) = written(&[step(1), step(2)]);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let all = [opened(), step(1), step(2)];
        let found = parse(&bytes).entries;
        prop_assert!(found.len() < 3);
        prop_assert_eq!(&found[..], &all[..found.len()]);
    }
}

#[test]
fn waiting_for_a_taken_lock_ends_with_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::enter(dir.path()).unwrap();
    assert!(Gate::try_enter(dir.path()).unwrap().is_none());
    let error = Gate::enter_within(dir.path(), Duration::from_millis(10)).unwrap_err();
    assert!(matches!(&error, JournalError::Busy { path, .. } if *path == Gate::lock_file(dir.path())), "{error}");
    drop(gate);
    assert!(Gate::try_enter(dir.path()).unwrap().is_some());
}
