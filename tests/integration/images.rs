//! Binds of the host's files into an image, and the images that `containers/build.sh` builds from packages.

use crate::container::{attempt, command, contained, path, run, sandbox, without_capability};
use crate::sandbox::{Said, Sandbox, WORKER, repository};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The exit code of the scripts if a program or a package that they need is not here.
const ABSENT: i32 = 69;

fn bind(sandbox: &Sandbox, script: &str, binds: &str) {
    contained(sandbox, script, "image.sif");
    let manifest = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", format!("{manifest}binds = {binds}\n"));
}

#[test]
fn a_bind_is_read_only_recorded_and_a_part_of_the_identity_by_its_libraries() {
    let Some(sandbox) = sandbox() else { return };
    for (name, content) in [("lib/libopenblas.so.0", "one"), ("notes.txt", "not in the identity")] {
        let file = sandbox.path("shared").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    fs::create_dir(sandbox.path("kept")).unwrap();
    let script = format!(
        "{WORKER}\ncat /opt/shared/notes.txt > seen\n(echo x > /opt/shared/new) 2>> seen || echo refused >> seen\necho x > /opt/kept/new\n"
    );
    bind(&sandbox, &script, r#"["shared:/opt/shared", "kept:/opt/kept:rw"]"#);
    run(&sandbox, &["run", "m.toml"]).expect(0);
    let seen = fs::read_to_string(sandbox.path("seen")).unwrap();
    assert!(seen.starts_with("not in the identity") && seen.ends_with("refused\n"), "{seen}");
    assert!(sandbox.path("kept/new").exists() && !sandbox.path("shared/new").exists());
    let (first, parts) = attempt(&sandbox);
    let container = &parts["container"]["value"];
    assert_eq!(container["image"], format!("sha256:{}", first["facts"]["image.sha256"].as_str().unwrap()));
    let digest = container["libraries"]["libopenblas.so.0"].as_str().unwrap().to_owned();
    assert_eq!(container["libraries"].as_object().unwrap().len(), 1, "{container}");
    let binds = &first["facts"]["image.binds"];
    assert_eq!(binds["/opt/shared"]["libraries"]["libopenblas.so.0"], digest);
    assert_eq!(
        (&binds["/opt/shared"]["access"], &binds["/opt/kept"]["access"]),
        (&"read".into(), &"read and write".into())
    );
    assert!(run(&sandbox, &["rerun", "latest"]).expect(0).starts_with("identical: "));
    // Another file that is not loaded is the same run; another library is another one, which `why` names.
    sandbox.write("shared/notes.txt", "changed");
    let again = run(&sandbox, &["run", "m.toml", "--json"]).expect(0);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&again).unwrap()["executed"], 0);
    sandbox.write("shared/lib/libopenblas.so.0", "two");
    run(&sandbox, &["run", "m.toml"]).expect(0);
    let said = sandbox.run(&["why", "latest", "latest~1"]).expect(1);
    assert!(said.contains("libraries.libopenblas.so.0") && !said.contains("program"), "{said}");
    sandbox.json(&["verify"], 0);
}

#[test]
fn a_bind_that_cannot_be_made_is_refused_with_its_place() {
    let sandbox = Sandbox::new();
    let said = |binds: &str| {
        bind(&sandbox, WORKER, binds);
        sandbox.run(&["run", "m.toml", "--dry-run"]).complaint(2)
    };
    let text = said(r#"["/a:/b:/c"]"#);
    assert!(text.contains("m.toml:13:9: container.binds has `/a:/b:/c`, which is no bind (it must be"), "{text}");
    let text = said(r#"["/tmp:/usr"]"#);
    assert!(text.contains("m.toml:13:9: container.binds has `/tmp:/usr`, which would hide"), "{text}");
    assert!(said("[3]").contains("m.toml:13:9: container.binds holds 3"));
    sandbox.sweep_manifest(WORKER, "1", "1");
    let manifest = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", format!("{manifest}[container]\nbinds = [\"/tmp\"]\n"));
    let text = sandbox.run(&["run", "m.toml"]).complaint(2);
    assert!(text.contains("`container.binds` needs an image (name one in `container.image`"), "{text}");
    let Some(sandbox) = self::sandbox() else { return };
    bind(&sandbox, WORKER, r#"["/tmp:/opt/x", "none:/opt/none"]"#);
    let text = run(&sandbox, &["run", "m.toml"]).complaint(2);
    assert!(text.contains("m.toml:13:9: `container.binds` has `"), "{text}");
    assert!(text.contains("none` cannot be bound: No such file or directory"), "{text}");
    assert!(!sandbox.ledger_dir().exists());
}

/// An image that the script builds, once for all tests; none where a program or a package is missing, and then it says so.
fn built(name: &str) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{}.sif", inputs()));
    if kept.exists() {
        return Some(kept);
    }
    let output = build(name, &kept.with_extension(format!("{}.new", std::process::id())))?;
    fs::rename(output, &kept).unwrap();
    Some(kept)
}

/// Names all that an image is built from: the same files give the same image.
fn inputs() -> String {
    let mut files: Vec<PathBuf> = ["containers", "containers/locks"]
        .iter()
        .flat_map(|folder| fs::read_dir(repository(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let said = Command::new("sha256sum").args(&files).output().unwrap();
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(&said.stdout).unwrap();
    String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap()[..16].to_owned()
}

fn build(name: &str, output: &Path) -> Option<PathBuf> {
    let mut command = Command::new(repository("containers/build.sh"));
    command.args([name, "--program", env!("CARGO_BIN_EXE_ledger"), "--output"]).arg(output);
    command.env("PATH", path()).stdin(Stdio::null());
    without_capability(&mut command);
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    if said.status.code() == Some(ABSENT) {
        // Seen of tests that pass, too. Nobody is left to tell if standard error is closed.
        let _ = writeln!(io::stderr(), "skipped: {}", text.lines().last().unwrap_or_default());
        return None;
    }
    assert!(said.status.success(), "{text}");
    Some(output.to_owned())
}

#[test]
fn the_minimal_image_is_small_the_same_each_time_and_runs_a_shell() {
    let Some(image) = built("minimal") else { return };
    assert!(fs::metadata(&image).unwrap().len() < 15_000_000);
    let again = image.with_extension(format!("{}.again", std::process::id()));
    build("minimal", &again).unwrap();
    assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap(), "two builds are one file");
    fs::remove_file(again).unwrap();
    let sandbox = Sandbox::new();
    fs::copy(image, sandbox.path("image.sif")).unwrap();
    contained(&sandbox, WORKER, "image.sif");
    run(&sandbox, &["run", "m.toml"]).expect(0);
    assert_eq!(attempt(&sandbox).0["facts"]["image.labels"]["org.opencontainers.image.title"], "ledger-minimal");
    assert!(run(&sandbox, &["rerun", "latest"]).expect(0).starts_with("identical: "));
    // The program starts in it, and reports what a run on GPUs would miss.
    let own = format!("type=bind,source={},destination=/.ledger/ledger,ro", env!("CARGO_BIN_EXE_ledger"));
    let mut inside = Command::new("apptainer");
    inside.args(["--quiet", "exec", "--cleanenv", "--contain", "--mount", &own]).arg(sandbox.path("image.sif"));
    inside.args(["/.ledger/ledger", "worker", "--libraries", "/opt/libraries", "--survey"]).env("PATH", path());
    without_capability(&mut inside);
    let report = Said::new(inside.output().unwrap()).expect(0);
    assert!(report.contains(r#""libnvrtc.so":"""#) && report.contains(r#""versions":{}"#), "{report}");
}

#[test]
fn the_image_for_programs_on_a_cpu_runs_python() {
    let Some(image) = built("cpu") else { return };
    let sandbox = Sandbox::new();
    fs::copy(image, sandbox.path("image.sif")).unwrap();
    sandbox.write(
        "train.py",
        "import json, os, sys, time\n\
         with open(os.environ['LEDGER_EVENTS'], 'a') as events:\n    \
             events.write(json.dumps({'event': 'metric', 'name': 'accuracy', 'value': 0.5}) + '\\n')\n\
         open('seen', 'w').write(sys.version + os.environ['PYTHONHASHSEED'])\n\
         time.sleep(4)\n",
    );
    sandbox.write(
        "m.toml",
        "model.name = 'toy'\nhardware.device = 'cpu'\n[program]\ncommand = ['python3', 'train.py']\nidentity = 'files'\n\
         files = ['train.py']\n[container]\nimage = 'image.sif'\n",
    );
    let mut command = command(&sandbox, &["run", "m.toml"]);
    Said::new(command.env("OMP_NUM_THREADS", "3").output().unwrap()).expect(0);
    let seen = fs::read_to_string(sandbox.path("seen")).unwrap();
    assert!(seen.starts_with("3.11.") && seen.ends_with('0'), "{seen}");
    let (attempt, _) = attempt(&sandbox);
    assert_eq!(attempt["metrics"]["accuracy"]["value"], 0.5);
    assert_eq!(attempt["facts"]["library.libc.so.6"]["of"], "the image", "{}", attempt["facts"]);
}
