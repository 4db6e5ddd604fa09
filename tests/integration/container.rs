//! Workers in containers, by the real Apptainer where there is one.

use crate::fake::Fake;
use crate::sandbox::{Said, Sandbox, WORKER, signal};
use crate::slurm_local::Cluster;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where `apptainer-local install` puts it, besides PATH.
const USUAL: &str = "/opt/apptainer/usr/bin";
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A shell and a few programs of this machine, with the libraries that they load.
const DEFINITION: &str = r#"Bootstrap: scratch
%setup
  root="$APPTAINER_ROOTFS"
  mkdir -p "$root/bin" "$root/tmp" "$root/etc" "$root/proc" "$root/sys" "$root/dev"
  for name in sh sleep cat env setsid; do
    program=$(readlink -f "$(command -v $name)")
    for file in "$program" $(ldd "$program" | grep -o '/[^ ]*'); do
      mkdir -p "$root$(dirname "$file")"
      cp -L "$file" "$root$file"
    done
    [ -e "$root/bin/$name" ] || ln -s "$program" "$root/bin/$name"
  done
%labels
  org.opencontainers.image.base.digest DIGEST
"#;

pub fn path() -> String {
    format!("{USUAL}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
}

/// A root without every capability, as in a VM or a CI's container, has to say which one it lacks.
pub fn without_capability(command: &mut Command) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap().trim().to_owned();
    if u64::from_str_radix(&permitted, 16).unwrap() & (1 << 24) == 0 {
        command.env("APPTAINER_DROP_CAPS", "CAP_SYS_RESOURCE");
    }
}

fn build(folder: &Path) -> Result<PathBuf, String> {
    let (definition, image) = (folder.join("image.def"), folder.join("image.sif"));
    fs::write(&definition, DEFINITION.replace("DIGEST", DIGEST)).unwrap();
    let mut command = Command::new("apptainer");
    command.arg("build").args([&image, &definition]).env("PATH", path()).stdin(Stdio::null());
    without_capability(&mut command);
    let said = command.output().map_err(|error| format!("no Apptainer here: {error}"))?;
    let text = || String::from_utf8_lossy(&said.stderr).lines().last().unwrap_or_default().to_owned();
    if said.status.success() { Ok(image) } else { Err(format!("Apptainer builds no images here: {}", text())) }
}

/// An image; none where there is no Apptainer, and then it says so.
fn image() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        // One for all, and no more are left: another process may put its own there, of which a copy is as good.
        let (target, kept) =
            (env!("CARGO_TARGET_TMPDIR"), Path::new(env!("CARGO_TARGET_TMPDIR")).join("container.sif"));
        let folder = tempfile::tempdir_in(target).unwrap();
        build(folder.path()).map(|image| {
            fs::rename(image, &kept).unwrap();
            kept
        })
    });
    match built {
        Err(reason) => {
            // Seen of tests that pass, too. Nobody is left to tell if standard error is closed.
            let _ = writeln!(io::stderr(), "skipped: {reason} (`tests/tools/apptainer-local install` installs it)");
            None
        }
        Ok(image) => Some(image),
    }
}

/// A sandbox with an image.
pub fn sandbox() -> Option<Sandbox> {
    let image = image()?;
    let sandbox = Sandbox::new();
    fs::copy(image, sandbox.path("image.sif")).unwrap();
    Some(sandbox)
}

pub fn command(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.command(args);
    command.env("PATH", path());
    without_capability(&mut command);
    command
}

pub fn run(sandbox: &Sandbox, args: &[&str]) -> Said {
    Said::new(command(sandbox, args).output().unwrap())
}

pub fn attempt(sandbox: &Sandbox) -> (Value, Value) {
    let shown = sandbox.json(&["show", "latest"], 0);
    (shown["attempts"][0].clone(), shown["parts"].clone())
}

pub fn contained(sandbox: &Sandbox, script: &str, image: &str) {
    sandbox.sweep_manifest(script, "1", "1");
    let manifest = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", format!("{manifest}[container]\nimage = \"{image}\"\n"));
}

/// The processes of this machine that were started with these words.
fn alive(words: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(words)).collect()
}

#[test]
fn a_run_in_a_container_is_its_images_and_sees_what_is_stated() {
    let Some(sandbox) = sandbox() else { return };
    contained(&sandbox, &format!("{WORKER}\nenv > seen\nsleep 0.3\n"), "image.sif");
    sandbox.write("home/secret", "of the host");
    let mut command = command(&sandbox, &["run", "m.toml"]);
    command.env("https_proxy", "http://me:hunter2@proxy:1").env("OMP_NUM_THREADS", "3");
    command.env("MY_PASSWORD", "hunter2").env("APPTAINERENV_STRAY", "1").env("APPTAINER_BIND", "/usr:/mnt");
    Said::new(command.output().unwrap()).expect(0);
    let (attempt, parts) = attempt(&sandbox);
    let sum = Command::new("sha256sum").arg(sandbox.path("image.sif")).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap()[..64].to_owned();
    assert_eq!(parts["container"]["value"], format!("sha256:{sum}"));
    let facts = &attempt["facts"];
    assert_eq!(facts["image.sha256"], sum);
    assert_eq!(facts["image.oci_digest"], DIGEST);
    assert!(facts["image.runtime"].as_str().unwrap().contains("apptainer"), "{facts}");
    assert!(facts["image.definition"].as_str().unwrap().starts_with("Bootstrap: scratch"));
    let mounts = facts["image.mounts"].to_string();
    assert!(mounts.contains("at /.ledger/events") && !mounts.contains("/mnt"), "{mounts}");
    assert!(facts["container.leaves_open"].to_string().contains("image.mounts"));
    assert_eq!(facts["library.libc.so.6"]["of"], "the image", "{facts}");
    let seen = fs::read_to_string(sandbox.path("seen")).unwrap();
    assert!(!seen.contains("hunter2") && !seen.contains("STRAY") && seen.contains("LEDGER_RUN="), "{seen}");
    assert!(!seen.contains("OMP_NUM_THREADS") && facts["OMP_NUM_THREADS"].is_null(), "{seen}");
    assert_eq!(facts["host.env.OMP_NUM_THREADS"], "3");
    assert_eq!(facts["image.variables"]["LEDGER_EVENTS"], "/.ledger/events");
    assert_eq!(attempt["series"].as_array().unwrap().iter().filter(|series| series["axis"] == "step").count(), 2);
    // It is the same run as long as the image is, and another one on the host.
    assert_eq!(
        serde_json::from_str::<Value>(&run(&sandbox, &["run", "m.toml", "--json"]).expect(0)).unwrap()["executed"],
        0
    );
    run(&sandbox, &["rerun", "latest"]).expect(0);
    contained(&sandbox, &format!("{WORKER}\nenv > seen\nsleep 0.3\n"), "host");
    run(&sandbox, &["run", "m.toml"]).expect(0);
    let (on_host, parts) = self::attempt(&sandbox);
    assert_eq!(parts["container"]["value"], "host");
    assert!(on_host["facts"]["container.leaves_open"].to_string().contains("libraries"));
    assert_eq!(on_host["facts"]["library.libc.so.6"]["sha256"].as_str().map(str::len), Some(64));
    assert_ne!(on_host["run"], attempt["run"]);
    assert!(sandbox.run(&["why", "latest", "latest~1"]).expect(1).contains("container"));
    sandbox.json(&["verify"], 0);
}

#[test]
fn a_failure_inside_is_the_failure_of_the_attempt() {
    let Some(sandbox) = sandbox() else { return };
    contained(&sandbox, "echo oh no >&2; exit 7", "image.sif");
    run(&sandbox, &["run", "m.toml"]).expect(4);
    assert_eq!(attempt(&sandbox).0["reason"], "the worker exited with code 7: oh no");
    let manifest = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", manifest.replace("\"sh\"", "\"no-such-program\""));
    run(&sandbox, &["run", "m.toml"]).expect(4);
    assert!(attempt(&sandbox).0["reason"].as_str().unwrap().contains("no-such-program"), "{}", attempt(&sandbox).0);
}

#[test]
fn an_interruption_reaches_the_program_once() {
    let Some(sandbox) = sandbox() else { return };
    // A second one would come while it is still there.
    let script = "trap 'echo INT >> got' INT\necho on > started\nwhile ! [ -e got ]; do sleep 0.1; done\nsleep 1\necho end >> got\nexit 5\n";
    contained(&sandbox, script, "image.sif");
    let mut child = command(&sandbox, &["run", "m.toml"]);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sandbox.wait_for("the worker's start", || sandbox.path("started").exists());
    signal(child.id(), "INT");
    let said = Sandbox::finish(child);
    assert_eq!(said.code, Some(130), "{said:?}");
    assert_eq!(fs::read_to_string(sandbox.path("got")).unwrap(), "INT\nend\n");
    assert_eq!(sandbox.outcomes(), ["interrupted"]);
}

#[test]
fn a_program_of_the_hosts_is_no_part_of_a_run_in_an_image() {
    let Some(sandbox) = sandbox() else { return };
    contained(&sandbox, WORKER, "image.sif");
    let manifest = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", manifest.replace("\"sh\"", "\"/bin/sh\""));
    run(&sandbox, &["run", "m.toml"]).expect(0);
    let (_, parts) = attempt(&sandbox);
    let files = parts["program"]["value"]["files"].as_object().unwrap();
    assert!(!files.is_empty() && !files.contains_key("/bin/sh"), "{files:?}");
    // The program that is killed inside is killed, and not ended by itself.
    contained(&sandbox, "kill -9 $$", "image.sif");
    run(&sandbox, &["run", "m.toml"]).expect(4);
    assert!(attempt(&sandbox).0["reason"].as_str().unwrap().starts_with("the worker was ended by SIGKILL"));
}

#[test]
fn an_image_that_lies_elsewhere_is_named_by_its_digest_and_found() {
    let Some(sandbox) = sandbox() else { return };
    contained(&sandbox, WORKER, "image.sif");
    run(&sandbox, &["run", "m.toml"]).expect(0);
    let (_, parts) = attempt(&sandbox);
    let sum = parts["container"]["value"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
    fs::rename(sandbox.path("image.sif"), sandbox.path("moved.sif")).unwrap();
    let said = run(&sandbox, &["rerun", "latest"]).complaint(2);
    assert!(said.contains("image.sif`, named by the record, does not exist here (--image FILE"), "{said}");
    assert!(said.contains(&format!("SHA-256 {sum}")), "{said}");
    assert_eq!(sandbox.outcomes(), ["finished"], "nothing was executed");
    let again = run(&sandbox, &["rerun", "latest", "--image", "moved.sif"]).expect(0);
    assert!(again.starts_with("identical: "), "{again}");
}

#[test]
fn another_image_in_its_place_is_noticed() {
    let Some(sandbox) = sandbox() else { return };
    // The image is mounted while it runs: it is another file that comes into its place.
    contained(&sandbox, "echo on > started; sleep 2", "image.sif");
    let mut child = command(&sandbox, &["run", "m.toml"]);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sandbox.wait_for("the worker's start", || sandbox.path("started").exists());
    let mut other = fs::read(sandbox.path("image.sif")).unwrap();
    other.push(0);
    sandbox.write("other.sif", other);
    fs::rename(sandbox.path("other.sif"), sandbox.path("image.sif")).unwrap();
    let said = Sandbox::finish(child);
    assert_eq!(said.code, Some(4), "{said:?}");
    let reason = attempt(&sandbox).0["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("changed after its digest was taken: its digest is "), "{reason}");
}

#[test]
fn nothing_is_left_of_a_container_whoever_ends() {
    let Some(sandbox) = sandbox() else { return };
    // A number that no other process sleeps for; one of the sleepers leaves the group and the session.
    let number = 1_000_000 + std::process::id();
    let sleeper = format!("sleep {number}");
    let script = format!("setsid {sleeper} &\n{sleeper} &\necho on > started\nwait\n");
    let started = || sandbox.path("started").exists() && alive(&sleeper).len() >= 2;
    let gone = || alive(&sleeper).is_empty();
    for (before, name) in ["INT", "KILL"].into_iter().enumerate() {
        contained(&sandbox, &script, "image.sif");
        let _ = fs::remove_file(sandbox.path("started"));
        let mut child = command(&sandbox, &["run", "m.toml", "--repeat", "1"]);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        sandbox.wait_for("the worker's start", started);
        signal(child.id(), name);
        let said = Sandbox::finish(child);
        if name == "INT" {
            assert_eq!(said.code, Some(130), "{said:?}");
        }
        sandbox.wait_for("the container's end", gone);
        assert_eq!(sandbox.outcomes(), vec!["interrupted"; before + 1], "{name}");
        assert!(sandbox.journals().is_empty());
    }
}

#[test]
fn tasks_of_a_cluster_run_in_the_image_that_they_were_submitted_with() {
    let Some(image) = image() else { return };
    let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
    fs::copy(image, cluster.sandbox.path("image.sif")).unwrap();
    cluster.sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    let submit = |more: &[&str]| {
        let mut command = cluster.command(&[&["submit", "m.toml", "--container", "image.sif"], more].concat());
        // The job takes it along.
        command.env("PATH", path()).env("XDG_CACHE_HOME", cluster.sandbox.path("cache"));
        without_capability(&mut command);
        Said::new(command.output().unwrap())
    };
    submit(&["--wait"]).expect(0);
    let shown = cluster.json(&["show", "latest"], 0);
    let part = shown["parts"]["container"]["value"].as_str().unwrap().to_owned();
    assert_eq!(part, format!("sha256:{}", shown["attempts"][0]["facts"]["image.sha256"].as_str().unwrap()));
    assert_eq!(cluster.sandbox.outcomes(), ["finished"; 2]);
    // The image is read once, where it is submitted, and not by each task: once it has been left alone for a while, its time tells of changes.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let sums = cluster.sandbox.path("cache/ledger/sums");
    let known = || {
        let image = fs::metadata(cluster.sandbox.path("image.sif")).unwrap();
        let line = format!(" {} {} ", image.ino(), image.len());
        fs::read_to_string(&sums).unwrap_or_default().contains(&line)
    };
    cluster.slurm("scontrol", &["update", "nodename=n1", "state=drain", "reason=test"]);
    submit(&["--repeat", "1"]).expect(0);
    assert!(known(), "the submission reads it");
    fs::remove_file(&sums).unwrap();
    cluster.slurm("scontrol", &["update", "nodename=n1", "state=resume"]);
    cluster.await_states(&["finished"; 2]);
    cluster.collect();
    assert!(!known(), "no task reads it");
    assert_eq!(cluster.sandbox.outcomes(), ["finished"; 4]);
    // Another image has come into its place when the task begins.
    cluster.slurm("scontrol", &["update", "nodename=n1", "state=drain", "reason=test"]);
    submit(&["--repeat", "1"]).expect(0);
    let mut other = fs::read(image).unwrap();
    other.push(0);
    cluster.sandbox.write("image.sif", other);
    cluster.slurm("scontrol", &["update", "nodename=n1", "state=resume"]);
    cluster.await_states(&["refused"; 2]);
    assert!(cluster.states()[0].1.contains("its container changed after it was submitted"), "{:?}", cluster.states());
}

#[test]
fn what_cannot_be_started_is_refused_before_anything_runs() {
    let sandbox = Sandbox::new();
    sandbox.write("no.sif", "#!/bin/sh\n");
    fs::create_dir(sandbox.path("folder.sif")).unwrap();
    let cases = [
        ("missing.sif", "which does not exist (build one"),
        ("no.sif", "no image in the Singularity Image Format"),
        ("folder.sif", "a folder (an unpacked image"),
        ("docker://debian:12", "apptainer pull image.sif docker://debian:12"),
    ];
    for (image, expected) in cases {
        contained(&sandbox, WORKER, image);
        for more in [&["--dry-run"][..], &[]] {
            let args: Vec<&str> = ["run", "m.toml"].iter().chain(more).copied().collect();
            let said = sandbox.run(&args).complaint(2);
            assert!(said.contains("`container.image` is `") && said.contains(expected), "{image}: {said}");
        }
    }
    assert!(!sandbox.ledger_dir().exists());
    let Some(sandbox) = self::sandbox() else { return };
    contained(&sandbox, WORKER, "image.sif");
    for scratch in ["relative", "/no/such/folder"] {
        let mut command = command(&sandbox, &["run", "m.toml"]);
        command.env("LEDGER_SCRATCH", scratch);
        let said = Said::new(command.output().unwrap()).complaint(2);
        assert!(said.contains("(create it for the container"), "{said}");
    }
    let mut without = sandbox.command(&["run", "m.toml"]);
    without.env("PATH", sandbox.path("home"));
    let said = Said::new(without.output().unwrap()).complaint(2);
    assert!(said.contains("there is no `apptainer` and no `singularity` on PATH"), "{said}");
    for (named, expected) in [("/no/such/program", "that is not a program here"), ("false", "`false` does not work")] {
        let mut command = command(&sandbox, &["run", "m.toml"]);
        let said = Said::new(command.env("LEDGER_CONTAINER_COMMAND", named).output().unwrap()).complaint(2);
        assert!(said.contains(&format!("LEDGER_CONTAINER_COMMAND is `{named}`, and {expected}")), "{said}");
    }
    assert!(!sandbox.ledger_dir().exists());
    sandbox.write("starter", format!("#!/bin/sh\nPATH={}\nexec apptainer \"$@\"\n", path()));
    fs::set_permissions(sandbox.path("starter"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut named = sandbox.command(&["run", "m.toml"]);
    without_capability(&mut named);
    named.env("PATH", sandbox.path("home")).env("LEDGER_CONTAINER_COMMAND", sandbox.path("starter"));
    Said::new(named.output().unwrap()).expect(0);
}

#[test]
fn gpus_bring_the_drivers_libraries_and_these_are_recorded() {
    let Some(sandbox) = sandbox() else { return };
    let fake = Fake::new("driver 580.159.04\ncuda 13000\ngpu NVIDIA H200\nuuid GPU-aa11\n");
    fs::create_dir(sandbox.path("lib")).unwrap();
    fs::copy(fake.path(), sandbox.path("lib/libcuda.so.1")).unwrap();
    contained(&sandbox, "env > seen; sleep 0.5; cat /proc/self/mountinfo > mounts", "image.sif");
    let manifest = fs::read_to_string(sandbox.path("m.toml")).unwrap().replace("\"cpu\"", "\"cuda\"");
    sandbox.write("m.toml", manifest);
    let mut command = command(&sandbox, &["run", "m.toml"]);
    command.env("LEDGER_NVML", fake.path()).env("LD_LIBRARY_PATH", sandbox.path("lib"));
    Said::new(command.output().unwrap()).expect(0);
    let (attempt, parts) = attempt(&sandbox);
    let seen = fs::read_to_string(sandbox.path("seen")).unwrap();
    assert!(seen.contains("CUDA_VISIBLE_DEVICES=GPU-aa11") && seen.contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"), "{seen}");
    assert_eq!(parts["cuda"]["value"], serde_json::json!({"driver_api": "13.0"}), "the image has its own libraries");
    let mounts = fs::read_to_string(sandbox.path("mounts")).unwrap();
    let injected = mounts.lines().filter_map(|line| line.split(' ').nth(4)?.strip_prefix("/.singularity.d/libs/"));
    let facts = &attempt["facts"];
    let mut checked = 0;
    for name in injected {
        let told = &facts[format!("library.{name}")];
        assert_eq!(told["sha256"].as_str().map(str::len), Some(64), "{name}: {facts}");
        checked += 1;
    }
    // Without a driver the tool brings in what else it finds of its list: OpenGL's libraries, or nothing.
    let skipped = if checked == 0 { "skipped in part: " } else { "" };
    let _ = writeln!(io::stderr(), "{skipped}{checked} libraries of this machine were brought in");
}
