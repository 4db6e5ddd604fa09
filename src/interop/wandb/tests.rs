use super::*;
use crate::interop::protobuf::Message;

/// Encodes records as a file, with chunks and blocks as LevelDB writes them.
fn file(records: &[Message]) -> Vec<u8> {
    let mut log = HEADER.to_vec();
    for record in records {
        let bytes = record.clone().into_bytes();
        let (mut rest, mut is_first) = (&bytes[..], true);
        loop {
            let left = BLOCK - log.len() % BLOCK;
            if left < HEAD {
                log.extend(std::iter::repeat_n(0, left));
                continue;
            }
            let (own, after) = rest.split_at(rest.len().min(left - HEAD));
            let kind = match (is_first, after.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4u8,
            };
            let mut summed = vec![kind];
            summed.extend_from_slice(own);
            log.extend_from_slice(&crc32(&summed).to_le_bytes());
            log.extend_from_slice(&u16::try_from(own.len()).unwrap().to_le_bytes());
            log.extend_from_slice(&summed);
            (rest, is_first) = (after, false);
            if rest.is_empty() {
                break;
            }
        }
    }
    log
}

fn of(field: u64, message: Message) -> Message {
    Message::default().message(field, &message)
}

fn named(name: &str, json: &str) -> Message {
    Message::default().text(1, name).text(16, json)
}

fn nested(names: &[&str], json: &str) -> Message {
    names.iter().fold(Message::default(), |message, name| message.text(2, name)).text(16, json)
}

fn row(items: &[Message]) -> Message {
    of(2, items.iter().fold(Message::default(), |message, item| message.message(1, item)))
}

fn run() -> Message {
    let config = Message::default().message(1, &named("lr", "0.1")).message(1, &named("model", r#"{"layers":3}"#));
    let config = config.message(1, &named("_wandb", r#"{"version":1}"#));
    let start = Message::default().int(1, 100).int(2, 500_000_000);
    let about =
        Message::default().text(1, "abc").text(3, "digits").message(4, &config).text(8, "one").text(9, "a note");
    of(17, about.text(10, "x").text(10, "y").message(17, &start))
}

fn put(dir: &tempfile::TempDir, log: &[u8]) {
    let folder = dir.path().join("offline-run-1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("run-abc.wandb"), log).unwrap();
}

fn read_one(dir: &tempfile::TempDir) -> ForeignRun {
    let mut found = Vec::new();
    read_wandb::<ImportError>(dir.path(), &mut |run| {
        found.push(run);
        Ok(())
    })
    .unwrap();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn points(run: &ForeignRun, name: &str) -> Vec<(i64, f64)> {
    run.curves[name].iter().map(|point| (point.step, point.value)).collect()
}

#[test]
fn checksums_are_those_of_zlib() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn a_run_has_its_rows_configuration_measurements_and_end() {
    let dir = tempfile::tempdir().unwrap();
    let stats =
        Message::default().message(2, &Message::default().int(1, 101)).message(3, &named("gpu.0.powerWatts", "70.5"));
    let records = [
        run(),
        of(12, Message::default().text(2, "eval/*").text(4, "epoch")),
        of(7, stats),
        row(&[
            nested(&["loss"], "1.5"),
            nested(&["eval/accuracy"], "0.5"),
            nested(&["epoch"], "7"),
            nested(&["inner", "a"], "2"),
            nested(&["picture", "_type"], "\"image-file\""),
            nested(&["picture", "width"], "28"),
            nested(&["note"], "\"text\""),
            nested(&["nothing"], "null"),
            nested(&["_step"], "0"),
            nested(&["_timestamp"], "102.5"),
        ]),
        row(&[nested(&["loss"], "NaN"), nested(&["eval/accuracy"], "0.6"), nested(&["_step"], "1")]),
        of(18, Message::default().int(1, 1)),
    ];
    put(&dir, &file(&records));
    let run = read_one(&dir);
    assert_eq!((run.id.as_str(), run.name.as_str(), run.started_unix_s), ("digits/abc@100.5", "one", Some(100.5)));
    let params: Vec<&str> = run.params.keys().map(String::as_str).collect();
    assert_eq!(params, ["lr", "model.layers"]);
    assert_eq!((run.texts["notes"].as_str(), run.texts["tags"].as_str()), ("a note", "x, y"));
    let names: Vec<&str> = run.curves.keys().map(String::as_str).collect();
    assert_eq!(names, ["epoch", "eval/accuracy", "inner.a", "loss"]);
    assert_eq!(points(&run, "eval/accuracy"), [(7, 0.5), (1, 0.6)], "the second row has no epoch");
    assert_eq!(run.curves["loss"][0], Point { step: 0, unix_s: 102.5, value: 1.5 });
    assert!(run.curves["loss"][1].value.is_nan());
    assert_eq!(run.system["system/gpu.0.powerWatts"][0], Point { step: 0, unix_s: 101.0, value: 70.5 });
    assert_eq!(run.skipped, BTreeMap::from([("image".to_owned(), 1), ("text value".to_owned(), 1)]));
    assert_eq!(run.outcome.reason(), Some("W&B says that it ended with exit code 1"));
    assert_eq!(run.warnings, ["the step metric of 1 point is no whole number: the step of the row is kept"]);
    run.sealed().check().unwrap();
}

#[test]
fn records_over_several_blocks_are_whole_and_a_cut_file_is_read_up_to_its_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(3 * BLOCK);
    let rows =
        (0..2000u32).map(|step| row(&[nested(&["loss"], &step.to_string()), nested(&["_step"], &step.to_string())]));
    let noted = of(17, Message::default().text(9, &long));
    let records: Vec<Message> = std::iter::once(noted).chain(rows).collect();
    let log = file(&records);
    put(&dir, &log);
    let whole = read_one(&dir);
    assert_eq!((whole.texts["notes"].len(), whole.points()), (long.len(), 2000));
    assert!(whole.warnings.is_empty(), "{:?}", whole.warnings);
    assert_eq!(whole.outcome.reason(), Some("the file has no end: it is running, or was killed"));
    put(&dir, &log[..log.len() - 3]);
    let cut = read_one(&dir);
    assert_eq!((cut.points(), cut.id.as_str()), (1999, whole.id.as_str()));
    assert!(cut.warnings[0].starts_with("the file ends within a record"), "{:?}", cut.warnings);
    let mut damaged = log.clone();
    let at = log.len() - 3;
    damaged[at] ^= 1;
    put(&dir, &damaged);
    let run = read_one(&dir);
    assert_eq!(run.points(), 1999);
    assert!(run.warnings[0].starts_with("the file is damaged at byte"), "{:?}", run.warnings);
}

#[test]
fn other_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = || read_wandb::<ImportError>(dir.path(), &mut |_| Ok(())).unwrap_err().to_string();
    assert!(refused().ends_with("has no offline run (expected `offline-run-…/run-ID.wandb`)"), "{}", refused());
    put(&dir, b":W&B\xe1\xbe\x01");
    assert!(
        refused().ends_with("is no file of W&B's version 0 (expected the header `:W&B`, 0xBEE1, 0)"),
        "{}",
        refused()
    );
}
