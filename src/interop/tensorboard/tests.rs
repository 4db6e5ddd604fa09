use super::*;
use crate::interop::event_file::record;
use crate::interop::protobuf::Message;

/// Returns an event with one value.
fn event(at_s: f64, step: u64, value: &Message) -> Message {
    Message::default().double(1, at_s).int(2, step).message(5, &Message::default().message(1, value))
}

fn scalar(tag: &str, value: f32) -> Message {
    Message::default().text(1, tag).float(2, value)
}

fn plugin(name: &str, content: &Message) -> Message {
    Message::default().message(1, &Message::default().text(1, name).message(2, content))
}

fn file(events: impl IntoIterator<Item = Message>) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(record(Message::default().double(1, 100.0).text(3, "brain.Event:2")));
    events.into_iter().for_each(|event| bytes.extend(record(event)));
    bytes
}

fn read(dir: &Path) -> Vec<ForeignRun> {
    let mut found = Vec::new();
    let took = read_tensorboard::<ImportError>(dir, &mut |run| {
        found.push(run);
        Ok(())
    });
    took.unwrap();
    found
}

fn put(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn points(run: &ForeignRun, name: &str) -> Vec<(i64, f64)> {
    run.curves[name].iter().map(|point| (point.step, point.value)).collect()
}

fn hparams() -> Message {
    let number = Message::default().text(1, "lr").message(2, &Message::default().double(2, 0.1));
    let text = Message::default().text(1, "optimizer").message(2, &Message::default().text(3, "adam"));
    let start = Message::default().message(1, &number).message(1, &text);
    let content = Message::default().message(3, &start);
    event(
        101.0,
        0,
        &Message::default().text(1, "_hparams_/session_start_info").message(9, &plugin("hparams", &content)),
    )
}

#[test]
fn each_folder_is_a_run_with_every_scalar_and_media_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    // TensorFlow 2 writes scalars as tensors, and their plugin with the first of them.
    let shape = Message::default();
    let tensor = |value: f32| Message::default().int(1, 1).message(2, &shape).text(4, "").float(5, value);
    let first = Message::default().text(1, "acc").message(8, &tensor(0.5)).message(9, &plugin("scalars", &shape));
    let second = Message::default().text(1, "acc").message(8, &tensor(0.75));
    let image = Message::default().text(1, "pic").message(4, &Message::default().int(1, 8));
    let events = [
        event(101.0, 1, &scalar("loss", 1.0)),
        event(102.0, 2, &scalar("loss", 0.5)),
        event(101.5, 1, &first),
        event(102.5, 2, &second),
        event(102.5, 2, &image),
        hparams(),
    ];
    put(dir.path(), "a/events.out.tfevents.1", &file(events));
    put(dir.path(), "b/deep/events.out.tfevents.1", &file([event(103.0, 7, &scalar("loss", 2.0))]));
    put(dir.path(), "b/notes.txt", b"no event file");
    let runs = read(dir.path());
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, ["a", "b/deep"]);
    let run = &runs[0];
    assert_eq!(points(run, "loss"), [(1, 1.0), (2, 0.5)]);
    assert_eq!(points(run, "acc"), [(1, 0.5), (2, 0.75)]);
    assert_eq!(run.curves["acc"][1].unix_s, 102.5);
    assert_eq!((run.params["lr"].as_float(), run.params["optimizer"].as_str()), (Some(0.1), Some("adam")));
    assert_eq!((run.skipped["image"], run.started_unix_s), (1, Some(100.0)));
    assert!(run.warnings.is_empty(), "{:?}", run.warnings);
}

#[test]
fn hyperparameters_of_the_only_inner_folder_belong_to_the_run() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a/events.out.tfevents.1", &file([event(101.0, 1, &scalar("loss", 1.0))]));
    put(dir.path(), "a/1700000000.5/events.out.tfevents.2", &file([hparams(), event(102.0, 0, &scalar("best", 0.9))]));
    let runs = read(dir.path());
    assert_eq!(runs.len(), 1);
    assert_eq!((runs[0].params.len(), points(&runs[0], "best")), (2, vec![(0, f64::from(0.9f32))]));
}

#[test]
fn a_restart_replaces_points_from_its_step_on() {
    let dir = tempfile::tempdir().unwrap();
    let logged = (1..=4u8).map(|step| event(100.0, step.into(), &scalar("loss", f32::from(step))));
    put(dir.path(), "events.out.tfevents.1", &file(logged));
    let start = Message::default().double(1, 200.0).int(2, 3).message(7, &Message::default().int(1, 1));
    put(dir.path(), "events.out.tfevents.2", &file([start, event(201.0, 3, &scalar("loss", 30.0))]));
    let runs = read(dir.path());
    assert_eq!((runs[0].name.as_str(), points(&runs[0], "loss")), (".", vec![(1, 1.0), (2, 2.0), (3, 30.0)]));
    assert_eq!(runs[0].warnings, ["2 points were replaced after a restart of the writer, as TensorBoard shows it"]);
}

#[test]
fn a_file_that_is_still_written_is_read_up_to_its_last_whole_record() {
    let dir = tempfile::tempdir().unwrap();
    let whole = file([event(101.0, 1, &scalar("loss", 1.0)), event(102.0, 2, &scalar("loss", 0.5))]);
    put(dir.path(), "events.out.tfevents.1", &whole[..whole.len() - 3]);
    let cut = read(dir.path()).remove(0);
    assert_eq!(points(&cut, "loss"), [(1, 1.0)]);
    assert!(cut.warnings[0].contains("ends within a record"), "{:?}", cut.warnings);
    put(dir.path(), "events.out.tfevents.1", &whole);
    let grown = read(dir.path()).remove(0);
    assert_eq!((grown.id.as_str(), grown.points()), (cut.id.as_str(), 2));
    assert_ne!(grown.digest, cut.digest);
    let mut damaged = whole.clone();
    let at = whole.len() - 6;
    damaged[at] ^= 1;
    put(dir.path(), "events.out.tfevents.1", &damaged);
    let run = read(dir.path()).remove(0);
    assert_eq!(run.points(), 1);
    assert!(run.warnings[0].contains("is damaged at byte"), "{:?}", run.warnings);
}

#[test]
fn a_folder_without_event_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = read_tensorboard::<ImportError>(dir.path(), &mut |_| Ok(())).unwrap_err();
    assert!(error.to_string().ends_with("has no event file (their names contain `tfevents`)"), "{error}");
}
