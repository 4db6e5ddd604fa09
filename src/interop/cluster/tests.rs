use super::*;
use crate::analysis::{By, events_by};
use std::fs;
use std::path::PathBuf;

struct Files {
    dir: tempfile::TempDir,
}

const CHECKPOINTS: &str = "\
\"timestamp\",\"hostname\",\"eventName\",\"eventType\",\"jobId\",\"taskId\"
\"2018-11-08T08:00:10.000Z\",\"b\",\"Render\",\"STOP\",\"job\",\"t1\"
\"2018-11-08T08:00:02.000Z\",\"b\",\"Render\",\"START\",\"job\",\"t1\"
\"2018-11-08T08:00:02.000Z\",\"b\",\"Render\",\"START\",\"job\",\"t1\"
2018-11-08T08:00:03.500Z,a,Render,START,job,t0
2018-11-08T08:00:05.500Z,a,Render,STOP,job,t0
2018-11-08T08:00:11.000Z,a,Upload,START,job,t0
2018-11-08T08:00:12.000Z,a,Save,STOP,job,t0
";
const GPU: &str = "\
timestamp,hostname,gpuSerial,gpuUUID,powerDrawWatt,gpuTempC,gpuUtilPerc,gpuMemUtilPerc
2018-11-08T08:00:01.000Z,b,007,GPU-b,10,30,0,0
2018-11-08T08:00:05.000Z,b,007,GPU-b,50,40,90,50
2018-11-08T08:00:09.000Z,b,007,GPU-b,70,[N/A],90,50
2018-11-08T08:00:09.000Z,b,007,GPU-b,70,[N/A],90,50
2018-11-08T08:00:09.000Z,b,007,GPU-b,71,[N/A],90,50
2018-11-08T08:00:03.000Z,a,008,GPU-a,20,31,1,0
2018-11-08T08:00:07.000Z,a,008,GPU-a,40,33,2,0
";
const TASKS: &str = "taskId,jobId,x,y,level\nt0,job,1,2,4\nt1,job,3,4,12\nt1,job,3,4,12\n";

impl Files {
    fn new(checkpoints: &str, gpu: &str, tasks: &str) -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        for (name, text) in [("c.csv", checkpoints), ("g.csv", gpu), ("t.csv", tasks)] {
            fs::write(files.path(name), text).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, skip_faulty: bool) -> Result<Cluster, String> {
        let (checkpoints, gpu, tasks) = (self.path("c.csv"), self.path("g.csv"), self.path("t.csv"));
        let files =
            ClusterFiles { checkpoints: &checkpoints, gpu: &gpu, tasks: Some(&tasks), name: "toy", skip_faulty };
        let folder = format!("{}/", self.dir.path().display());
        read_cluster(&files).map_err(|error| error.to_string().replace(&folder, ""))
    }
}

#[test]
fn logs_become_phases_and_samples_become_series() {
    let cluster = Files::new(CHECKPOINTS, GPU, TASKS).read(false).unwrap();
    let Sealed { attempt, phases, series, .. } = &cluster.sealed;
    assert_eq!(cluster.sealed.check(), Ok(()));
    assert_eq!((attempt.started_unix_ms, attempt.wall_ns), (1_541_664_001_000, 11_000_000_000));
    let told: Vec<(&str, u64, u32, u64, Option<u64>)> = phases
        .iter()
        .map(|phase| {
            (
                phase.name.as_str(),
                phase.index,
                phase.rank,
                phase.start_ns / 1_000_000,
                phase.stop_ns.map(|ns| ns / 1_000_000),
            )
        })
        .collect();
    assert_eq!(
        told,
        [("Render", 1, 1, 1000, Some(9000)), ("Render", 0, 0, 2500, Some(4500)), ("Upload", 0, 0, 10_000, None)]
    );
    let of = |name: &str| series.iter().find(|series| series.name == name).unwrap();
    assert_eq!(of("gpu.1.power_instant").values, [10.0, 50.0, 70.0, 71.0]);
    assert_eq!(of("gpu.1.temperature").values, [30.0, 40.0], "what is missing is no zero");
    assert_eq!(of("gpu.0.power_instant").positions, [2_000_000_000, 6_000_000_000]);
    let facts = Value::Table(attempt.facts.clone()).flatten();
    assert_eq!(facts["cluster.gpu_serials"].to_string(), "[008, 007]");
    assert_eq!(facts["cluster.task_levels"].to_string(), "[4, 12]");
    insta::assert_snapshot!(attempt.warnings.join("\n"), @r"
    1 rows of the event log stand in it more than once, and count once
    1 rows of the samples stand in them more than once, and count once
    1 readings of one GPU at one moment differ
    2 values of the samples are missing
    1 stops of events have no start, and are left out
    1 starts of events have no stop, and are in no mean
    ");
    let digest = crate::record::Digest::of(CHECKPOINTS.as_bytes());
    assert_eq!(cluster.sources[0].digest, digest);
    assert_eq!(
        attempt.id(),
        Files::new(CHECKPOINTS, GPU, TASKS).read(true).unwrap().sealed.attempt.id().max(attempt.id())
    );
}

#[test]
fn means_are_computed_from_the_imported_samples() {
    let cluster = Files::new(CHECKPOINTS, GPU, TASKS).read(false).unwrap();
    let names = events_by(&cluster.sealed, By::Name, None).unwrap();
    let render = &names.rows[0];
    assert_eq!((render.key.as_str(), render.events, render.sampled, names.unstopped), ("Render", 2, 1, 1));
    assert_eq!(render.time_s.value(), Some(5.0));
    // The event on host b: 50, 70 and 71 W. The event on host a contains no sample.
    assert_eq!(render.means[0].sample.value(), Some(191.0 / 3.0));
    // Host b: 10 W at its start, and 71 W, the last sample, at its stop. Host a: 20 W and 40 W.
    assert_eq!(render.means[0].nearest.value(), Some((40.5 + 30.0) / 2.0));
    let levels = events_by(&cluster.sealed, By::Level, None).unwrap();
    assert_eq!(levels.event.as_deref(), Some("Render"));
    assert_eq!(levels.rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["4", "12"]);
    let gpus = events_by(&cluster.sealed, By::Gpu, Some("Render")).unwrap();
    assert_eq!(gpus.rows[0].key, "007", "the slowest first, zeros kept");
    assert_eq!(gpus.rows[0].gpu, Some(("b".to_owned(), "GPU-b".to_owned())));
    assert!(
        events_by(&cluster.sealed, By::Name, Some("Rendr"))
            .unwrap_err()
            .to_string()
            .contains("there are: Render, Upload")
    );
}

#[test]
fn faults_have_places_and_can_be_skipped() {
    let checkpoints =
        format!("{CHECKPOINTS}noon,a,Render,START,job,t0\n2018-11-08T08:00:12.000Z,a,Render,PAUSE,job,t0\nx\n");
    let files = Files::new(&checkpoints, GPU, TASKS);
    insta::assert_snapshot!(files.read(false).unwrap_err(), @r"
    c.csv:9: timestamp `noon` is not a time (write it as 2018-11-08T08:18:55.510Z)
    c.csv:10: eventType `PAUSE` is unknown (START and STOP are known)
    c.csv:11: it has 1 fields, but the header has 6
    ");
    let cluster = files.read(true).unwrap();
    assert_eq!(cluster.counts["faulty_rows"], 3);
    assert!(cluster.sealed.attempt.warnings.iter().any(|warning| warning.starts_with("3 rows cannot be read")));
    let files = Files::new(&format!("{CHECKPOINTS}\"x\n"), GPU, TASKS);
    let error = files.read(true).unwrap_err();
    assert!(error.starts_with("c.csv:9: a quote is not closed, and includes all that follows"), "{error}");
    let files = Files::new(CHECKPOINTS, &GPU.replace("gpuTempC", "t").replace(",50,40,", ",50,warm,"), TASKS);
    assert!(files.read(false).is_ok(), "columns that are not known may hold anything");
    let files = Files::new(CHECKPOINTS, &GPU.replace(",50,40,", ",50,warm,"), TASKS);
    insta::assert_snapshot!(files.read(false).unwrap_err(), @"g.csv:3: gpuTempC is `warm` (it must be a number, or empty)");
    let files = Files::new(CHECKPOINTS, GPU, &TASKS.replace("4,12\nt1,job,3,4,12", "4,12\nt1,job,3,4,8"));
    insta::assert_snapshot!(files.read(false).unwrap_err(), @"t.csv:4: task `t1` has level 8, but 12 above");
    let files = Files::new(&CHECKPOINTS.replace("taskId", "task"), GPU, TASKS);
    insta::assert_snapshot!(files.read(false).unwrap_err(), @"`c.csv` has no column `taskId` (there are: timestamp, hostname, eventName, eventType, jobId, task)");
    let files = Files::new(CHECKPOINTS, GPU.lines().next().unwrap(), TASKS);
    assert_eq!(files.read(false).unwrap_err(), "`g.csv` has no rows");
}
