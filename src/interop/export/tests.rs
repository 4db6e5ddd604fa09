mod crates;
mod hostile;
mod perfetto;
mod streaming;

use super::frame::Kind;
use super::*;
use crate::record::{Axis, Metric, Nonce, Outcome, Parts, Quantity, Run, Series, Source, Table};
use std::path::Path;

fn entry(outcome: Outcome, seed: u64) -> Entry {
    let run = Run::new(Parts {
        config: Table::from([
            ("model.name".to_owned(), "toy/net".into()),
            ("training.batch_size".to_owned(), 32i64.into()),
            ("training.learning_rate".to_owned(), 0.5.into()),
        ])
        .into(),
        program: Table::from([("argv".to_owned(), vec!["a".to_owned(), "b".to_owned()].into())]).into(),
        device: "V100".into(),
        seed,
        ..Parts::sample()
    });
    let mut loss = Series::new("loss", "", Axis::Step);
    loss.push(1, 2.5);
    loss.push(2, f64::NAN);
    let mut power = Series::new(Source::Gpu(0).series(Quantity::PowerInstant), "W", Axis::TimeNs);
    power.push(1_500_000_000, 100.25);
    let phase =
        |name: &str, index, start_ns, stop_ns| Phase { name: name.to_owned(), index, rank: 0, start_ns, stop_ns };
    let second = 1_000_000_000;
    let phases = vec![
        phase("epoch", 1, second, Some(3 * second)),
        phase("step", 1, second, Some(2 * second)),
        phase("step", 2, 2 * second, Some(3 * second)),
        phase("eval", 1, 3 * second, None),
    ];
    let series = vec![power, loss];
    let attempt = Attempt {
        run: run.id,
        nonce: Nonce([7; 16]),
        started_unix_ms: 1_541_665_135_510,
        wall_ns: 4 * second,
        outcome,
        metrics: BTreeMap::from([
            ("energy".to_owned(), Metric::within(599_874.5, 0.25, "J")),
            ("gpu_util".to_owned(), Metric::new(71.5, "%")),
            ("inference_time@32".to_owned(), Metric::new(0.125, "s")),
            ("perplexity".to_owned(), Metric::new(f64::INFINITY, "")),
            ("accuracy".to_owned(), Metric::missing("", "nobody evaluated")),
        ]),
        settings: Table::from([("experiment.name".to_owned(), "it's, \"mine\"".into())]),
        facts: Table::from([
            ("host.name".to_owned(), "node7".into()),
            ("cluster".to_owned(), vec!["long".to_owned()].into()),
        ]),
        series: series.iter().map(Series::summary).collect(),
        phases: Phase::digest_all(&phases),
        ..Attempt::sample()
    };
    let id = attempt.id();
    Entry { id, sealed: Sealed { run, attempt, series, phases } }
}

fn configure(entry: &mut Entry, fields: impl IntoIterator<Item = (String, Value)>) {
    let mut config = entry.sealed.run.config().clone();
    config.extend(fields);
    entry.sealed.run = Run::new(Parts { config: config.into(), ..entry.sealed.run.parts.clone() });
}

fn both() -> [Entry; 2] {
    let failed = Outcome::Failed { reason: "out of\nmemory".to_owned() };
    let mut other = entry(failed, 2);
    other.sealed.attempt.metrics.clear();
    [entry(Outcome::Finished, 1), other]
}

/// Reads the points of an attempt in memory.
fn points_of(entry: &Entry) -> impl Fn(&str, &mut dyn FnMut(u64, f64)) -> io::Result<()> {
    move |name, visit| {
        let series = entry.sealed.series.iter().find(|series| series.name == name).unwrap();
        series.positions.iter().zip(&series.values).for_each(|(position, value)| visit(*position, *value));
        Ok(())
    }
}

fn points_written(encoding: Encoding, entries: &[&Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = TableWriter::new(encoding, &mut out);
    writer.append(no_points()).unwrap();
    for entry in entries {
        write_points(entry, &points_of(entry), &mut writer).unwrap();
    }
    writer.finish().unwrap();
    out
}

type Written = (PathBuf, Vec<u8>);

fn content(file: &File<'_>) -> Written {
    let mut out = io::Cursor::new(Vec::new());
    file.write(&mut out).unwrap();
    (file.path.clone(), out.into_inner())
}

struct FileStore {
    folders: Vec<PathBuf>,
    experiment: Written,
    files: Vec<Written>,
}

fn mlflow(entry: &Entry, root: &Path) -> FileStore {
    let points = points_of(entry);
    let MlflowFiles { folders, experiment, files } = mlflow_files(entry, &points, root);
    FileStore {
        folders,
        experiment: (experiment.0, experiment.1.into_bytes()),
        files: files.iter().map(content).collect(),
    }
}

fn mllog(entry: &Entry) -> Written {
    content(&mllog_lines(entry, &points_of(entry)))
}

fn tensorboard(entry: &Entry) -> Written {
    content(&tensorboard_file(entry, &points_of(entry)))
}

fn written(encoding: Encoding, frames: impl IntoIterator<Item = Frame>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = TableWriter::new(encoding, &mut bytes);
    frames.into_iter().for_each(|frame| writer.append(frame).unwrap());
    writer.finish().unwrap();
    bytes
}

/// Returns the table of attempts, in pieces of `piece` attempts.
fn wide_by(entries: &[Entry], piece: usize) -> Vec<Frame> {
    let mut columns = WideColumns::default();
    entries.iter().for_each(|entry| columns.see(entry));
    entries.chunks(piece).map(|some| columns.frame(some)).collect()
}

fn wide(entries: &[Entry]) -> Frame {
    wide_by(entries, entries.len()).remove(0)
}

fn prometheus_text(entries: &[Entry]) -> String {
    let mut names = PrometheusNames::default();
    entries.iter().for_each(|entry| names.see(entry));
    let mut families = names.families();
    entries.iter().for_each(|entry| families.add(entry));
    let mut bytes = Vec::new();
    families.write(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    // Hashes are tested elsewhere, and are long.
    let text = String::from_utf8(bytes).unwrap();
    let is_hash = |word: &&str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_hash).collect();
    words.iter().fold(text.clone(), |text, hash| text.replace(hash, "HASH"))
}

#[test]
fn the_table_of_attempts_has_one_row_per_attempt() {
    insta::assert_snapshot!(text(written(Encoding::Csv, [wide(&both())])), @r#"
    attempt,run,group,model,seed,started,outcome,reason,tainted,experiment.name,model.name,training.batch_size,training.learning_rate,container,cuda,device,driver,program.argv,energy [J],energy.uncertainty [J],gpu_util [%],inference_time@32 [s],perplexity
    HASH,HASH,HASH,toy/net,1,2018-11-08T08:18:55.510Z,finished,,,"it's, ""mine""",toy/net,32,0.5,host,none,V100,none,"[""a"",""b""]",599874.5,0.25,71.5,0.125,inf
    HASH,HASH,HASH,toy/net,2,2018-11-08T08:18:55.510Z,failed,"out of
    memory",,"it's, ""mine""",toy/net,32,0.5,host,none,V100,none,"[""a"",""b""]",,,,,
    "#);
    insta::assert_snapshot!(text(written(Encoding::JsonLines, [wide(&both()[..1])])), @r#"{"attempt":"HASH","container":"host","cuda":"none","device":"V100","driver":"none","energy [J]":599874.5,"energy.uncertainty [J]":0.25,"experiment.name":"it's, \"mine\"","gpu_util [%]":71.5,"group":"HASH","inference_time@32 [s]":0.125,"model":"toy/net","model.name":"toy/net","outcome":"finished","perplexity":"Infinity","program.argv":["a","b"],"run":"HASH","seed":"1","started":"2018-11-08T08:18:55.510Z","training.batch_size":32,"training.learning_rate":0.5}"#);
}

/// An attempt of a program whose fields and metrics have the names of our columns, or of each other.
fn named_alike() -> Entry {
    let mut entry = entry(Outcome::Finished, 1);
    let fields = ["run", "accuracy", "device", "experiment.name", "a$b", "a b"];
    configure(&mut entry, fields.map(|name| (name.to_owned(), format!("field {name}").into())));
    let metric = |(name, value, unit): (&str, f64, &str)| (name.to_owned(), Metric::new(value, unit));
    let own = [("outcome", 1.0, ""), ("accuracy", 2.0, ""), ("a$b", 3.0, ""), ("a_b", 4.0, ""), ("e [J]", 5.0, "")];
    let more =
        [("e", 6.0, "J"), ("x@32", 7.0, ""), ("x_at_32", 8.0, ""), ("series", 9.0, ""), ("attempt_info", 10.0, "")];
    entry.sealed.attempt.metrics = own.into_iter().chain(more).map(metric).collect();
    entry
}

#[test]
fn colliding_names_are_distinguished_in_tables() {
    let entry = named_alike();
    let frame = wide(std::slice::from_ref(&entry));
    let names: BTreeSet<&str> = frame.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names.len(), frame.columns.len(), "{names:?}");
    let cell = |name: &str| frame.columns.iter().find(|column| column.name == name).and_then(|column| column.text(0));
    assert_eq!(cell("run"), Some(entry.sealed.run.id.to_string().into()));
    for (name, text) in [
        ("field.run", "field run"),
        ("outcome", "finished"),
        ("metric.outcome", "1.0"),
        ("accuracy", "field accuracy"),
        ("metric.accuracy", "2.0"),
        ("part.device", "V100"),
        ("setting.experiment.name", "it's, \"mine\""),
        ("e [J]", "6.0"),
        ("metric.e [J]", "5.0"),
    ] {
        assert_eq!(cell(name).as_deref(), Some(text), "{name}");
    }
}

#[test]
fn colliding_names_are_distinguished_in_other_formats() {
    let entry = named_alike();
    let digest = |name: &str| Digest::of(name.as_bytes()).prefix(8);
    let text = prometheus_text(std::slice::from_ref(&entry));
    let sample = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")))
            .unwrap_or_else(|| panic!("{name}: {text}"));
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(
        (sample("ledger_a_b"), sample(&format!("ledger_a_b_{}", digest("a$b\0")))),
        ("4.0".to_owned(), "3.0".to_owned())
    );
    assert_eq!(sample(&format!("ledger_attempt_info_{}", digest("attempt_info\0"))), "10.0");
    let info = text.lines().find(|line| line.starts_with("ledger_attempt_info{")).unwrap();
    for label in [format!("run_{}=\"field run\"", digest("run")), format!("a_b_{}=\"field a$b\"", digest("a$b"))] {
        assert!(info.contains(&label), "{label}: {info}");
    }
    assert!(info.contains(",a_b=\"field a b\""), "{info}");
    let FileStore { files, .. } = mlflow(&entry, Path::new("/tmp"));
    let paths: BTreeSet<&PathBuf> = files.iter().map(|(path, _)| path).collect();
    assert_eq!(paths.len(), files.len());
    let of = |end: String| {
        let file = files.iter().find(|(path, _)| path.ends_with(&end)).unwrap_or_else(|| panic!("{end}: {paths:?}"));
        String::from_utf8(file.1.clone()).unwrap()
    };
    for (name, value) in [
        ("a_b".to_owned(), "4.0"),
        (format!("a_b_{}", digest("a$b")), "3.0"),
        ("x_at_32".to_owned(), "8.0"),
        (format!("x_at_32_{}", digest("x@32")), "7.0"),
        (format!("series_{}", digest("series")), "9.0"),
    ] {
        assert_eq!(of(format!("metrics/{name}")), format!("1541665139510 {value} 0\n"), "{name}");
    }
    assert_eq!(of("params/experiment.name".to_owned()), "field experiment.name");
    assert_eq!(of("params/setting.experiment.name".to_owned()), "it's, \"mine\"");
}

#[test]
fn the_table_of_values_has_one_row_per_value() {
    insta::assert_snapshot!(text(written(Encoding::Csv, [long(&both()[..1])])), @r#"
    attempt,run,model,seed,kind,name,value,text,unit,uncertainty,reason
    HASH,HASH,toy/net,1,outcome,outcome,,finished,,,
    HASH,HASH,toy/net,1,field,model.name,,toy/net,,,
    HASH,HASH,toy/net,1,field,training.batch_size,32.0,,,,
    HASH,HASH,toy/net,1,field,training.learning_rate,0.5,,,,
    HASH,HASH,toy/net,1,setting,experiment.name,,"it's, ""mine""",,,
    HASH,HASH,toy/net,1,part,container,,host,,,
    HASH,HASH,toy/net,1,part,cuda,,none,,,
    HASH,HASH,toy/net,1,part,device,,V100,,,
    HASH,HASH,toy/net,1,part,driver,,none,,,
    HASH,HASH,toy/net,1,part,program.argv,,"[""a"",""b""]",,,
    HASH,HASH,toy/net,1,metric,accuracy,,,,,nobody evaluated
    HASH,HASH,toy/net,1,metric,energy,599874.5,,J,0.25,
    HASH,HASH,toy/net,1,metric,gpu_util,71.5,,%,,
    HASH,HASH,toy/net,1,metric,inference_time@32,0.125,,s,,
    HASH,HASH,toy/net,1,metric,perplexity,inf,,,,
    HASH,HASH,toy/net,1,fact,host.name,,node7,,,
    "#);
}

#[test]
fn the_tables_of_points_and_phases_have_one_row_each() {
    let [entry, _] = both();
    insta::assert_snapshot!(text(points_written(Encoding::Csv, &[&entry])), @r"
    attempt,run,model,series,unit,step,time_ns,value
    HASH,HASH,toy/net,gpu.0.power_instant,W,,1500000000,100.25
    HASH,HASH,toy/net,loss,,1,2000000000,2.5
    HASH,HASH,toy/net,loss,,2,3000000000,NaN
    ");
    insta::assert_snapshot!(text(written(Encoding::Csv, [phases(&entry, &entry.sealed.phases)])), @r"
    attempt,run,model,phase,index,rank,start_ns,stop_ns
    HASH,HASH,toy/net,epoch,1,0,1000000000,3000000000
    HASH,HASH,toy/net,step,1,0,1000000000,2000000000
    HASH,HASH,toy/net,step,2,0,2000000000,3000000000
    HASH,HASH,toy/net,eval,1,0,3000000000,
    ");
}

#[test]
fn a_table_without_rows_has_its_columns() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    for (empty, head) in [
        (no_points(), "attempt,run,model,series,unit,step,time_ns,value\n"),
        (no_phases(), "attempt,run,model,phase,index,rank,start_ns,stop_ns\n"),
    ] {
        assert_eq!(text(written(Encoding::Csv, [empty.clone()])), head);
        assert!(written(Encoding::JsonLines, [empty.clone()]).is_empty());
        let reader = SerializedFileReader::new(on_disk(&written(Encoding::Parquet, [empty]))).unwrap();
        let metadata = reader.metadata().file_metadata();
        assert_eq!((metadata.schema_descr().num_columns(), metadata.num_rows()), (8, 0));
    }
}

/// 2^53 + 1 is the first integer that an `f64` cannot represent.
#[test]
fn whole_numbers_keep_their_digits() {
    const ODD: i64 = (1 << 53) + 1;
    let mut entries = both();
    for (entry, value) in entries.iter_mut().zip([ODD.into(), Value::from(0.5)]) {
        configure(entry, [("params.n".to_owned(), value)]);
        entry.sealed.attempt.facts.insert("even".to_owned(), (ODD - 1).into());
    }
    let values = text(written(Encoding::Csv, [long(&entries)]));
    for row in
        ["field,params.n,,9007199254740993,,,\n", "field,params.n,0.5,,,,\n", "fact,even,9007199254740992.0,,,,\n"]
    {
        assert!(values.contains(row), "{row}: {values}");
    }
    let runs = wide(&entries);
    let column = runs.columns.iter().find(|column| column.name == "params.n").unwrap();
    assert_eq!(
        (column.kind, column.text(0), column.text(1)),
        (Kind::Text, Some("9007199254740993".into()), Some("0.5".into()))
    );
}

#[test]
fn pieces_of_the_table_of_attempts_have_the_columns_of_the_whole() {
    let mut entries = both();
    // An integer in one piece and a real number in the other; a setting and a metric that the other piece lacks.
    entries[0].sealed.attempt.settings.insert("at".to_owned(), Value::from(3i64));
    entries[1].sealed.attempt.settings.insert("at".to_owned(), 0.5.into());
    entries[1].sealed.attempt.settings.insert("run".to_owned(), "own".into());
    for encoding in [Encoding::Csv, Encoding::JsonLines] {
        let whole = text(written(encoding, [wide(&entries)]));
        assert_eq!(text(written(encoding, wide_by(&entries, 1))), whole);
        assert!(whole.contains("3.0") && whole.contains("setting.run"), "{whole}");
    }
}

#[test]
fn a_percentage_becomes_an_exact_ratio() {
    let mut entry = entry(Outcome::Finished, 1);
    entry.sealed.attempt.metrics.insert("share".to_owned(), Metric::new(35.0, "%"));
    let text = prometheus_text(std::slice::from_ref(&entry));
    assert!(text.lines().any(|line| line.starts_with("ledger_share_ratio{") && line.ends_with("} 0.35")), "{text}");
}

fn on_disk(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, bytes).unwrap();
    file
}

/// Parquet's reader of rows checks the file, because it shares no code with the writer of columns.
#[test]
fn parquet_has_the_content_of_the_frame() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    let bytes = written(Encoding::Parquet, [wide(&both())]);
    let reader = SerializedFileReader::new(on_disk(&bytes)).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    let place = |name: &str| rows[0].get_column_iter().position(|(head, _)| head == name).unwrap();
    assert_eq!(rows[0].get_double(place("energy [J]")).unwrap(), 599_874.5);
    assert_eq!(rows[0].get_long(place("training.batch_size")).unwrap(), 32);
    assert_eq!(rows[0].get_timestamp_millis(place("started")).unwrap(), 1_541_665_135_510);
    assert_eq!(rows[0].get_string(place("experiment.name")).unwrap(), "it's, \"mine\"");
    assert!(rows[1].get_double(place("energy [J]")).is_err(), "missing is null, and no zero");
    assert_eq!(rows[1].get_string(place("outcome")).unwrap(), "failed");
}

#[test]
fn parquet_of_many_pieces_is_one_table() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let [entry, other] = both();
    let table = points_written(Encoding::Parquet, &[&entry, &other]);
    let reader = SerializedFileReader::new(on_disk(&table)).unwrap();
    assert_eq!((reader.metadata().num_row_groups(), reader.metadata().file_metadata().num_rows()), (1, 6));
}

#[test]
fn prometheus_has_base_units_and_labels() {
    insta::assert_snapshot!(text(prometheus_text(&both()).into_bytes()), @r#"
    # HELP ledger_attempt_info what an attempt is, its fields as labels
    # TYPE ledger_attempt_info gauge
    ledger_attempt_info{attempt="HASH",run="HASH",model="toy/net",seed="1",outcome="finished",tainted="false",experiment_name="it's, \"mine\"",model_name="toy/net",training_batch_size="32",training_learning_rate="0.5"} 1.0
    ledger_attempt_info{attempt="HASH",run="HASH",model="toy/net",seed="2",outcome="failed",tainted="false",experiment_name="it's, \"mine\"",model_name="toy/net",training_batch_size="32",training_learning_rate="0.5"} 1.0
    # HELP ledger_attempt_start_timestamp_seconds when an attempt started, since the Unix epoch
    # TYPE ledger_attempt_start_timestamp_seconds gauge
    ledger_attempt_start_timestamp_seconds{attempt="HASH",run="HASH",model="toy/net",seed="1"} 1541665135.51
    ledger_attempt_start_timestamp_seconds{attempt="HASH",run="HASH",model="toy/net",seed="2"} 1541665135.51
    # HELP ledger_energy_joules energy of the training, evaluation left out, warm-up counted as measured steps
    # TYPE ledger_energy_joules gauge
    ledger_energy_joules{attempt="HASH",run="HASH",model="toy/net",seed="1"} 599874.5
    # HELP ledger_gpu_util_ratio share of the time in which the GPUs ran a kernel, while training
    # TYPE ledger_gpu_util_ratio gauge
    ledger_gpu_util_ratio{attempt="HASH",run="HASH",model="toy/net",seed="1"} 0.715
    # HELP ledger_inference_time_seconds median time to answer one batch of evaluation data
    # TYPE ledger_inference_time_seconds gauge
    ledger_inference_time_seconds{attempt="HASH",run="HASH",model="toy/net",seed="1",at="32"} 0.125
    # HELP ledger_perplexity exponential of eval_loss: among how many tokens the model hesitates
    # TYPE ledger_perplexity gauge
    ledger_perplexity{attempt="HASH",run="HASH",model="toy/net",seed="1"} +Inf
    "#);
}

#[test]
fn mlperf_lines_are_in_the_order_of_the_run() {
    let [entry, other] = both();
    let (name, bytes) = mllog(&entry);
    assert!(name.to_str().unwrap().starts_with("toy_net-"));
    insta::assert_snapshot!(text(bytes), @r#"
    :::MLLOG {"namespace": "", "time_ms": 1541665135510, "event_type": "POINT_IN_TIME", "key": "submission_benchmark", "value": "toy/net", "metadata": {}}
    :::MLLOG {"namespace": "", "time_ms": 1541665135510, "event_type": "POINT_IN_TIME", "key": "submission_platform", "value": "V100", "metadata": {}}
    :::MLLOG {"namespace": "", "time_ms": 1541665135510, "event_type": "POINT_IN_TIME", "key": "seed", "value": 1, "metadata": {}}
    :::MLLOG {"namespace": "", "time_ms": 1541665135510, "event_type": "POINT_IN_TIME", "key": "global_batch_size", "value": 32, "metadata": {}}
    :::MLLOG {"namespace": "", "time_ms": 1541665135510, "event_type": "POINT_IN_TIME", "key": "opt_base_learning_rate", "value": 0.5, "metadata": {}}
    :::MLLOG {"namespace": "", "time_ms": 1541665135510, "event_type": "INTERVAL_START", "key": "init_start", "value": null, "metadata": {}}
    :::MLLOG {"namespace": "", "time_ms": 1541665136510, "event_type": "INTERVAL_END", "key": "init_stop", "value": null, "metadata": {}}
    :::MLLOG {"namespace": "", "time_ms": 1541665136510, "event_type": "INTERVAL_START", "key": "run_start", "value": null, "metadata": {}}
    :::MLLOG {"namespace": "", "time_ms": 1541665136510, "event_type": "INTERVAL_START", "key": "epoch_start", "value": null, "metadata": {"epoch_num":1}}
    :::MLLOG {"namespace": "", "time_ms": 1541665138510, "event_type": "INTERVAL_END", "key": "epoch_stop", "value": null, "metadata": {"epoch_num":1}}
    :::MLLOG {"namespace": "", "time_ms": 1541665138510, "event_type": "INTERVAL_START", "key": "eval_start", "value": null, "metadata": {"epoch_num":1}}
    :::MLLOG {"namespace": "", "time_ms": 1541665138510, "event_type": "INTERVAL_END", "key": "run_stop", "value": null, "metadata": {"status":"success"}}
    :::MLLOG {"namespace": "", "time_ms": 1541665139510, "event_type": "POINT_IN_TIME", "key": "ledger_energy", "value": 599874.5, "metadata": {"unit":"J"}}
    :::MLLOG {"namespace": "", "time_ms": 1541665139510, "event_type": "POINT_IN_TIME", "key": "ledger_gpu_util", "value": 71.5, "metadata": {"unit":"%"}}
    :::MLLOG {"namespace": "", "time_ms": 1541665139510, "event_type": "POINT_IN_TIME", "key": "ledger_inference_time@32", "value": 0.125, "metadata": {"unit":"s"}}
    :::MLLOG {"namespace": "", "time_ms": 1541665139510, "event_type": "POINT_IN_TIME", "key": "ledger_perplexity", "value": "Infinity", "metadata": {"unit":""}}
    "#);
    assert!(
        String::from_utf8(mllog(&other).1)
            .unwrap()
            .contains("\"run_stop\", \"value\": null, \"metadata\": {\"status\":\"aborted\"}")
    );
}

#[test]
fn the_batch_of_all_ranks_is_the_global_one() {
    let [mut entry, _] = both();
    configure(&mut entry, [("training.batch_global".to_owned(), 64i64.into())]);
    let text = String::from_utf8(mllog(&entry).1).unwrap();
    assert!(text.contains("\"global_batch_size\", \"value\": 64,") && !text.contains("\"value\": 32,"), "{text}");
}

#[test]
fn a_file_store_has_one_folder_per_run() {
    let [entry, other] = both();
    let FileStore { folders, experiment: described, files } = mlflow(&entry, Path::new("/tmp/a b"));
    assert_eq!(
        folders.iter().filter_map(|path| path.file_name()).collect::<Vec<_>>(),
        ["metrics", "params", "artifacts"]
    );
    let files: BTreeMap<PathBuf, String> =
        files.into_iter().map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap())).collect();
    let of =
        |end: &str| files.iter().find(|(path, _)| path.ends_with(end)).unwrap_or_else(|| panic!("{end}")).1.as_str();
    assert_eq!(of("metrics/energy"), "1541665139510 599874.5 0\n");
    assert_eq!(of("metrics/inference_time_at_32"), "1541665139510 0.125 0\n");
    assert_eq!(of("metrics/perplexity"), "1541665139510 inf 0\n");
    assert_eq!(of("metrics/series/loss"), "1541665137510 2.5 1\n1541665138510 NaN 2\n", "at the end of each step");
    assert_eq!(of("metrics/system/gpu.0.power_instant"), "1541665137010 100.25 0\n");
    assert_eq!(of("params/training.batch_size"), "32");
    assert!(!files.keys().any(|path| path.ends_with("metrics/accuracy")), "what is missing is no zero");
    let experiment = files.keys().next().unwrap().components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
    assert!(experiment.len() == 18 && experiment.parse::<u64>().is_ok());
    assert_eq!(described.0, Path::new(&experiment).join("meta.yaml"));
    let meta = String::from_utf8(described.1).unwrap();
    assert!(
        meta.contains("artifact_location: 'file:///tmp/a%20b/") && meta.contains("name: 'it''s, \"mine\"'\n"),
        "{meta}"
    );
    let meta = of(&format!("{}/meta.yaml", entry.id.0.prefix(32)));
    assert!(meta.contains("status: 3\n") && meta.contains("end_time: 1541665139510\n"), "{meta}");
    let failed = mlflow(&other, Path::new("/tmp"));
    let reason = failed.files.iter().find(|(path, _)| path.ends_with("tags/ledger.reason")).unwrap();
    assert_eq!(reason.1, b"out of\nmemory");
}

/// Parses the records with their checksums, and counts the scalars.
#[test]
fn event_files_are_records_with_checksums() {
    let [entry, _] = both();
    let (path, bytes) = tensorboard(&entry);
    assert!(path.to_str().unwrap().starts_with("it_s___mine_/toy_net-"), "{}", path.display());
    let mask = |crc: u32| (crc / (1 << 15) + crc % (1 << 15) * (1 << 17)).wrapping_add(0xa282_ead8);
    let (mut rest, mut records) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        let length = usize::try_from(u64::from_le_bytes(rest[..8].try_into().unwrap())).unwrap();
        assert_eq!(u32::from_le_bytes(rest[8..12].try_into().unwrap()), mask(crc32c::crc32c(&rest[..8])));
        let record = &rest[12..12 + length];
        assert_eq!(
            u32::from_le_bytes(rest[12 + length..16 + length].try_into().unwrap()),
            mask(crc32c::crc32c(record))
        );
        records.push(record);
        rest = &rest[16 + length..];
    }
    // Version, text, three points and four metrics.
    assert_eq!(records.len(), 9);
    let has = |record: &[u8], text: &str| record.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has(records[0], "brain.Event:2"));
    assert!(has(records[1], "training.batch_size = 32") && has(records[1], "seed = 1") && has(records[1], "text"));
    let energy = records.iter().find(|record| has(record, "metric/energy")).unwrap();
    assert_eq!(energy[energy.len() - 4..], 599_874.5f32.to_le_bytes());
    assert_eq!(energy[..10], [&[9][..], &1_541_665_139.51f64.to_le_bytes(), &[0x10]].concat()[..], "at the end");
    assert_eq!(energy[10], 2, "at the last step");
}

#[test]
fn attempts_whose_ids_begin_alike_have_files_of_their_own() {
    let [mut one, mut other] = both();
    for (at, entry) in [&mut one, &mut other].into_iter().enumerate() {
        entry.id.0.0[..4].fill(7);
        entry.id.0.0[4] = u8::try_from(at).unwrap();
    }
    assert_eq!(one.id.0.prefix(8), other.id.0.prefix(8));
    for path in [|entry: &Entry| mllog(entry).0, |entry: &Entry| tensorboard(entry).0] {
        assert_ne!(path(&one), path(&other));
    }
    // TensorBoard names a run by its folder.
    assert_ne!(tensorboard(&one).0.parent(), tensorboard(&other).0.parent());
}

#[test]
fn names_of_files_stay_in_their_folder() {
    assert_eq!(path_name("../../etc/passwd"), "_.._.._etc_passwd");
    assert_eq!((path_name(""), path_name(".."), path_name("a b/c")), ("_".into(), "_..".into(), "a_b_c".into()));
}

/// The attempt has tainted times and energies, and a valid accuracy.
#[test]
fn every_format_marks_a_tainted_attempt() {
    let mut entry = entry(Outcome::Finished, 1);
    entry.sealed.attempt.facts.insert(Attempt::DISTURBED.to_owned(), vec!["hot start", "throttled"].into());
    entry.sealed.attempt.facts.insert("telemetry.marks".to_owned(), vec!["disagreement"].into());
    let why = "hot start; throttled; the two estimators of energy disagree";
    let csv = text(written(Encoding::Csv, [wide(std::slice::from_ref(&entry))]));
    assert!(csv.contains(why), "{csv}");
    let prometheus = prometheus_text(std::slice::from_ref(&entry));
    assert!(prometheus.contains("outcome=\"finished\",tainted=\"true\""), "{prometheus}");
    let FileStore { files, .. } = mlflow(&entry, Path::new("/tmp"));
    let tag = files.iter().find(|(path, _)| path.ends_with("tags/ledger.tainted")).map(|(_, bytes)| bytes.as_slice());
    assert_eq!(tag, Some(why.as_bytes()));
    let lines = text(mllog(&entry).1);
    assert!(lines.contains(&format!("\"key\": \"ledger_tainted\", \"value\": \"{why}\"")), "{lines}");
    let board = tensorboard(&entry).1;
    let said = format!("finished, tainted: {why}");
    assert!(board.windows(said.len()).any(|bytes| bytes == said.as_bytes()));
}
