use super::*;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int64Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// The exporter's schema as pyarrow writes it, without its columns of files and histograms.
const SCHEMA: &str = "message schema {
    optional binary project_id (STRING);
    optional binary run_id (STRING);
    optional binary attribute_path (STRING);
    optional binary attribute_type (STRING);
    optional fixed_len_byte_array(8) step (DECIMAL(18, 6));
    optional int64 timestamp (TIMESTAMP(MILLIS, true));
    optional int64 int_value;
    optional double float_value;
    optional binary string_value (STRING);
    optional boolean bool_value;
    optional int64 datetime_value (TIMESTAMP(MILLIS, true));
    optional group string_set_value (LIST) { repeated group list { optional binary element (STRING); } }
}";

/// A row: its path and type, and optionally step, time and value.
#[derive(Clone, Default)]
struct Cells {
    path: &'static str,
    kind: &'static str,
    step: Option<f64>,
    unix_ms: Option<i64>,
    int: Option<i64>,
    float: Option<f64>,
    text: Option<&'static str>,
    truth: Option<bool>,
    moment_ms: Option<i64>,
    set: &'static [&'static str],
}

fn point(path: &'static str, step: f64, value: f64) -> Cells {
    Cells { step: Some(step), unix_ms: Some(1_700_000_000_000), ..float(path, value).of("float_series") }
}

fn float(path: &'static str, value: f64) -> Cells {
    Cells { path, kind: "float", float: Some(value), ..Cells::default() }
}

fn text(path: &'static str, value: &'static str) -> Cells {
    Cells { path, kind: "string", text: Some(value), ..Cells::default() }
}

fn truth(path: &'static str) -> Cells {
    Cells { path, kind: "bool", truth: Some(true), ..Cells::default() }
}

impl Cells {
    fn of(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }
}

/// Writes one column of values, which may be absent.
fn column<T: parquet::data_type::DataType>(group: &mut SerializedRowGroupWriter<'_, File>, cells: &[Option<T::T>]) {
    let mut writer = group.next_column().unwrap().expect("a column");
    let values: Vec<T::T> = cells.iter().flatten().cloned().collect();
    let there: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    writer.typed::<T>().write_batch(&values, Some(&there), None).unwrap();
    writer.close().unwrap();
}

fn write(path: &Path, rows: &[Cells]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    let texts = |of: &dyn Fn(&Cells) -> Option<&'static str>| -> Vec<Option<ByteArray>> {
        rows.iter().map(|row| of(row).map(ByteArray::from)).collect()
    };
    column::<ByteArrayType>(&mut group, &texts(&|_| Some("work/digits")));
    column::<ByteArrayType>(&mut group, &texts(&|_| Some("DIG-1")));
    column::<ByteArrayType>(&mut group, &texts(&|row| Some(row.path)));
    column::<ByteArrayType>(&mut group, &texts(&|row| Some(row.kind)));
    let step = |row: &Cells| {
        let millionths = format!("{:.0}", row.step? * 1e6).parse::<i64>().unwrap();
        Some(FixedLenByteArray::from(millionths.to_be_bytes().to_vec()))
    };
    column::<FixedLenByteArrayType>(&mut group, &rows.iter().map(step).collect::<Vec<_>>());
    column::<Int64Type>(&mut group, &rows.iter().map(|row| row.unix_ms).collect::<Vec<_>>());
    column::<Int64Type>(&mut group, &rows.iter().map(|row| row.int).collect::<Vec<_>>());
    column::<DoubleType>(&mut group, &rows.iter().map(|row| row.float).collect::<Vec<_>>());
    column::<ByteArrayType>(&mut group, &texts(&|row| row.text));
    column::<BoolType>(&mut group, &rows.iter().map(|row| row.truth).collect::<Vec<_>>());
    column::<Int64Type>(&mut group, &rows.iter().map(|row| row.moment_ms).collect::<Vec<_>>());
    let (mut values, mut there, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        if row.set.is_empty() {
            there.push(0);
            again.push(0);
        }
        for (place, text) in row.set.iter().enumerate() {
            values.push(ByteArray::from(*text));
            there.push(3);
            again.push(i16::from(place > 0));
        }
    }
    let mut writer = group.next_column().unwrap().expect("a column");
    writer.typed::<ByteArrayType>().write_batch(&values, Some(&there), Some(&again)).unwrap();
    writer.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
}

fn read(path: &Path) -> (Vec<ForeignRun>, Vec<String>) {
    let mut runs = Vec::new();
    let trashed = read_neptune::<ImportError>(path, &mut |run| {
        runs.push(run);
        Ok(())
    });
    (runs, trashed.unwrap())
}

fn about() -> Vec<Cells> {
    let created =
        Cells { path: "sys/creation_time", kind: "datetime", moment_ms: Some(1_700_000_000_000), ..Cells::default() };
    let tags = Cells { path: "sys/tags", kind: "string_set", set: &["a", "b"], ..Cells::default() };
    let layers = Cells { path: "parameters/model/layers", kind: "int", int: Some(3), ..Cells::default() };
    vec![
        created,
        tags,
        layers,
        text("sys/name", "first"),
        text("parameters/optimizer", "adam"),
        float("parameters/lr", 0.1),
        float("sys/running_time", 12.5),
        float("test/accuracy", 0.9),
        truth("amp"),
        float("config/lr", 0.2),
    ]
}

#[test]
fn a_run_has_its_points_parameters_metrics_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("digits/DIG-1_part_0.parquet");
    let series = [
        point("train/loss", 1.0, 0.5),
        point("train/loss", 0.0, 1.0),
        point("train/loss", 2.0, f64::NAN),
        point("monitoring/1a2b/gpu_power_usage", 0.0, 250.0),
        point("train/loss", 0.5, 0.7),
        text("log", "a line").of("string_series"),
        Cells { path: "weights", kind: "file", ..Cells::default() },
    ];
    write(&path, &[about(), series.to_vec()].concat());
    let (runs, trashed) = read(dir.path());
    let [run] = runs.as_slice() else { panic!("{} runs", runs.len()) };
    assert!(trashed.is_empty());
    assert_eq!(
        (run.experiment.as_str(), run.name.as_str(), run.id.as_str()),
        ("work/digits", "first", "work/digits/DIG-1")
    );
    let expected = Table::from([
        ("amp".to_owned(), true.into()),
        ("lr".to_owned(), 0.2.into()),
        ("model.layers".to_owned(), 3i64.into()),
        ("optimizer".to_owned(), "adam".into()),
        ("parameters.lr".to_owned(), 0.1.into()),
    ]);
    assert_eq!(run.params, expected);
    let loss = &run.curves["train/loss"];
    let steps: Vec<(i64, f64)> = loss.iter().map(|point| (point.step, point.value)).collect();
    assert_eq!(steps[..2], [(1, 0.5), (0, 1.0)]);
    assert!(steps[2].0 == 2 && steps[2].1.is_nan());
    assert_eq!(loss[0].unix_s, 1.7e9);
    assert_eq!(run.curves["test/accuracy"][0].value, 0.9, "a real number that is no parameter is a metric");
    assert_eq!(run.system["monitoring/1a2b/gpu_power_usage"][0].value, 250.0);
    assert_eq!(run.texts["sys/tags"], "a, b");
    assert_eq!((run.started_unix_s, run.ended_unix_s), (Some(1.7e9), Some(1.7e9 + 12.5)));
    let skipped = [("file", 1), ("point without a whole step", 1), ("text point", 1)];
    assert_eq!(run.skipped, skipped.map(|(kind, number)| (kind.to_owned(), number)).into());
    assert_eq!(run.outcome, Outcome::Finished);
    run.clone().sealed().check().unwrap();
}

#[test]
fn parts_are_one_run_in_order_and_a_missing_part_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let part = |number: u32| dir.path().join(format!("digits/DIG-1_part_{number}.parquet"));
    for number in 0..12 {
        write(&part(number), &[about(), vec![point("loss", f64::from(number), 1.0)]].concat());
    }
    // A file that the exporter has not finished has another name.
    std::fs::write(dir.path().join("digits/DIG-2_part_0.parquet.tmp"), "PAR1").unwrap();
    let (runs, _) = read(dir.path());
    let steps: Vec<i64> = runs[0].curves["loss"].iter().map(|point| point.step).collect();
    assert_eq!((runs.len(), steps), (1, (0..12).collect()));
    let whole = runs[0].digest;
    // A single part selects its whole run.
    assert_eq!(read(&part(3)).0[0].digest, whole);
    std::fs::remove_file(part(0)).unwrap();
    let (runs, _) = read(dir.path());
    assert!(matches!(runs[0].outcome, Outcome::Interrupted { .. }) && runs[0].warnings[0].contains("missing"));
    assert_ne!(runs[0].digest, whole);
}

#[test]
fn states_of_the_tracker_become_outcomes_and_trashed_runs_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("DIG-1_part_0.parquet");
    let outcome = |more: Cells| {
        write(&path, &[about(), vec![more]].concat());
        let (runs, trashed) = read(&path);
        (runs.into_iter().next().map(|run| run.outcome), trashed)
    };
    assert!(matches!(outcome(truth("sys/failed")).0, Some(Outcome::Failed { .. })));
    assert!(matches!(outcome(text("sys/state", "Active")).0, Some(Outcome::Interrupted { .. })));
    assert_eq!(outcome(text("sys/state", "Inactive")).0, Some(Outcome::Finished));
    assert_eq!(outcome(truth("sys/trashed")), (None, vec!["first".to_owned()]));
}

#[test]
fn other_files_are_refused_with_the_expected_format() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path| read_neptune::<ImportError>(path, &mut |_| Ok(())).unwrap_err().to_string();
    assert!(refused(dir.path()).contains("expected `PROJECT/RUN_part_0.parquet`"));
    let other = dir.path().join("table.parquet");
    std::fs::write(&other, "PAR1").unwrap();
    assert!(refused(&other).contains("expected `RUN_part_0.parquet`"));
    let broken = dir.path().join("DIG-1_part_0.parquet");
    std::fs::write(&broken, "PAR1").unwrap();
    assert!(refused(&broken).contains("cannot be read as a file of neptune-exporter"));
}

#[test]
fn steps_are_whole_numbers_or_none() {
    let bytes = |millionths: i64| millionths.to_be_bytes();
    assert_eq!(whole_step(&bytes(7_000_000)), Some(7));
    assert_eq!(whole_step(&bytes(-3_000_000)), Some(-3));
    assert_eq!(whole_step(&bytes(500_000)), None);
    assert_eq!(whole_step(&[]), None);
    assert_eq!(whole_step(&[0xff; 40]), None, "-1 millionth, in more bytes than are needed");
}
