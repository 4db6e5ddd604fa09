use super::told::{MOST_LABELS, MOST_NAME};
use super::tool::too_old;
use super::*;
use crate::engine::machine::Machine;

fn image() -> Image {
    let path = std::env::current_exe().unwrap();
    let stamp = Stamp::of(&std::fs::metadata(&path).unwrap());
    let tool =
        Tool { path: "/usr/bin/apptainer".into(), version: "apptainer version 1".to_owned(), prefix: "APPTAINERENV_" };
    Image {
        path: "/images/a.sif".into(),
        sha256: "ab".repeat(32),
        stamp,
        told: Sif::default(),
        tool,
        brought: Vec::new(),
    }
}

fn start() -> Start<'static> {
    Start {
        program: None,
        named_files: vec!["/shared/vocabulary.txt".into()],
        data: None,
        has_gpus: false,
        executable: Path::new("/bin/ledger"),
        fifo: Path::new("/l/journal/a.events"),
        kernels: None,
        scratch: Path::new("/scratch"),
        told: vec![("LEDGER_RUN", "1234".into())],
    }
}

fn words(contained: &Contained) -> Vec<String> {
    contained.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

#[test]
fn a_container_shows_only_the_stated_files_and_variables() {
    let directory = Path::new("/home/me/a,b \"c\"");
    let argv = ["python3".to_owned(), "a b.py".to_owned()];
    let named_files = vec!["/shared/vocabulary.txt".into(), directory.join("model.py")];
    let program = Some((argv.as_slice(), directory));
    let contained = image().contain(&Start { program, named_files, data: Some(Path::new("/tmp")), ..start() });
    assert_eq!(
        words(&contained),
        [
            "/usr/bin/apptainer",
            "--quiet",
            "exec",
            "--cleanenv",
            "--contain",
            "--pid",
            "--no-eval",
            "--pwd",
            "/home/me/a,b \"c\"",
            "--mount",
            r#"type=bind,"source=/l/journal/a.events","destination=/.ledger/events""#,
            "--mount",
            r#"type=bind,"source=/scratch","destination=/scratch""#,
            "--mount",
            r#"type=bind,"source=/tmp","destination=/tmp",ro"#,
            "--mount",
            r#"type=bind,"source=/home/me/a,b ""c""","destination=/home/me/a,b ""c""""#,
            "--mount",
            r#"type=bind,"source=/shared/vocabulary.txt","destination=/shared/vocabulary.txt",ro"#,
            "/images/a.sif",
            "python3",
            "a b.py",
        ]
    );
    let set: Vec<String> = contained.set.iter().map(|(name, value)| format!("{name}={}", value.display())).collect();
    assert_eq!(
        set,
        ["APPTAINERENV_LEDGER_RUN=1234", "APPTAINERENV_LEDGER_EVENTS=/.ledger/events", "APPTAINERENV_TMPDIR=/scratch"]
    );
    let facts = image().facts(&contained);
    assert_eq!(facts["image.mounts"].to_string().split(", ").nth(2), Some("/tmp (read-only)"));
    assert_eq!(
        facts["image.variables"].to_string(),
        "{LEDGER_EVENTS = /.ledger/events, LEDGER_RUN = 1234, TMPDIR = /scratch}"
    );
}

#[test]
fn the_trainer_is_mounted_into_the_container() {
    let contained = image().contain(&start());
    let words = words(&contained);
    assert!(
        words.contains(&r#"type=bind,"source=/bin/ledger","destination=/.ledger/ledger",ro"#.to_owned()),
        "{words:?}"
    );
    assert_eq!(words[words.len() - 3..], ["/images/a.sif", "/.ledger/ledger", "worker"]);
}

#[test]
fn a_system_folder_is_not_mounted_over_that_of_the_image() {
    for folder in ["/usr", "/usr/local", "/opt/conda"] {
        let settings: Table =
            [(IMAGE.to_owned(), "/a.sif".into()), ("program.directory".to_owned(), folder.into())].into();
        let unasked = |_: &Path| -> Result<_, ContainerError> { panic!("the image is read") };
        let error = super::image(&Cell { settings, ..Cell::default() }, unasked, tool).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{folder}` must be visible in the container")), "{error}");
    }
}

#[test]
fn only_harmless_variables_of_the_tool_stay() {
    let all = [
        "https_proxy",
        "HTTP_PROXY",
        "TERM",
        "APPTAINER_ADD_CAPS",
        "APPTAINER_BIND",
        "APPTAINERENV_X",
        "SINGULARITY_NV",
        "APPTAINER_DROP_CAPS",
        "PATH",
        "SINGULARITYENV_Y",
    ];
    let left = strays(all.iter().map(|name| (name.into(), "1".into())).collect());
    assert_eq!(
        left,
        [
            "https_proxy",
            "HTTP_PROXY",
            "TERM",
            "APPTAINER_ADD_CAPS",
            "APPTAINER_BIND",
            "APPTAINERENV_X",
            "SINGULARITY_NV",
            "SINGULARITYENV_Y"
        ]
    );
}

#[test]
fn labels_and_the_digest_of_the_source_image_are_read() {
    let digest = format!("sha256:{}", "0f".repeat(32));
    let apptainer = r#"{"data":{"attributes":{"labels":{"a.b":"c","org.opencontainers.image.base.digest":"DIGEST"}}}}"#;
    let sif = Sif { definition: None, documents: vec![apptainer.replace("DIGEST", &digest), "no json".to_owned()] };
    let found = labels(&sif);
    assert_eq!(found["a.b"], "c".into());
    assert_eq!(oci_digest(&found, None), Some(digest.clone()));
    let definition = format!("Bootstrap: docker\nFrom: debian@{digest}\n%post\n  echo From: nothing\n");
    assert_eq!(oci_digest(&Table::new(), Some(&definition)), Some(digest));
    assert_eq!(oci_digest(&Table::new(), Some("From: debian:12\n")), None);
    let clean = short("%environment\n  export API_KEY=hunter2hunter2x9\n  export A=1\n", MOST_TEXT);
    assert!(!clean.contains("hunter2") && clean.contains("export A=1"), "{clean}");
    let many: Vec<String> = (0..500).map(|number| format!("\"l{number}\":\"{}\"", "x".repeat(20_000))).collect();
    let sif =
        Sif { definition: None, documents: vec![format!("{{\"config\":{{\"Labels\":{{{}}}}}}}", many.join(","))] };
    let found = labels(&sif);
    assert!(found.len() == MOST_LABELS && found.values().all(|value| value.to_string().len() < 600));
    let long = "n".repeat(MOST_NAME + 1);
    let text = format!(r#"{{"config":{{"Labels":{{"API_KEY":"hunter2","{long}":"x","a":"b"}}}}}}"#);
    let found = labels(&Sif { definition: None, documents: vec![text] });
    assert_eq!(Value::Table(found).to_string(), "{API_KEY = (redacted), a = b}");
}

#[test]
fn the_image_of_a_cell_is_parsed() {
    let asks = |text: &str| asked(&Cell { settings: [(IMAGE.to_owned(), text.into())].into(), ..Cell::default() });
    assert_eq!(asks("host").unwrap(), None);
    assert_eq!(asks("/a/b.sif").unwrap(), Some("/a/b.sif".into()));
    assert!(
        asks("docker://debian:12").unwrap_err().to_string().contains("apptainer pull image.sif docker://debian:12")
    );
    assert_eq!(part(None), "host".into());
    assert_eq!(part(Some("ab")), "sha256:ab".into());
}

#[test]
fn a_file_outside_of_the_folder_is_bound_where_the_program_looks_for_it() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let (folder, shared) = (root.join("proj/sub"), root.join("shared"));
    std::fs::create_dir_all(folder.join("own")).unwrap();
    std::fs::create_dir(&shared).unwrap();
    for file in [folder.join("own/a"), shared.join("w"), root.join("proj/v")] {
        std::fs::write(file, "1").unwrap();
    }
    std::os::unix::fs::symlink(shared.join("w"), folder.join("weights")).unwrap();
    std::os::unix::fs::symlink("../../shared", folder.join("assets")).unwrap();
    std::os::unix::fs::symlink("own/a", folder.join("b")).unwrap();
    let bound = |file: &str| outside(&folder.join(file), &folder).map(|mount| (mount.source, mount.target));
    let same = |path: PathBuf| Some((path.clone(), path));
    assert_eq!(bound("../v"), same(root.join("proj/v")));
    assert_eq!(bound("own/../../v"), same(root.join("proj/v")));
    assert_eq!(bound("weights"), same(shared.join("w")));
    assert_eq!(bound("assets/w"), same(shared.join("w")));
    assert_eq!((bound("own/a"), bound("b"), bound("no such")), (None, None, None));
    std::os::unix::fs::symlink(&shared, root.join("link")).unwrap();
    let by_link = outside(&root.join("link/w"), &folder).unwrap();
    assert_eq!((by_link.source, by_link.target), (shared.join("w"), root.join("link/w")));
    assert!(lies_in(&folder.join("b"), &folder) && !lies_in(&folder.join("weights"), &folder));
}

#[test]
fn versions_that_lack_the_options_are_too_old() {
    for said in ["singularity version 3.8.7-1.el8", "singularity-ce version 3.9.0", "apptainer version 1.0.3"] {
        assert!(too_old(said).is_some(), "{said}");
    }
    let known = ["apptainer version 1.4.5", "singularity-ce version 3.11.4-jammy", "singularity-ce version 4.1.0"];
    for said in known.into_iter().chain(["apptainer version 2.0", "apptainer version main"]) {
        assert_eq!(too_old(said), None, "{said}");
    }
}

#[test]
fn an_image_that_was_only_touched_counts_as_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sif");
    std::fs::write(&path, "one").unwrap();
    let stamp = Stamp::of(&std::fs::metadata(&path).unwrap());
    let image = Image { path: path.clone(), sha256: crate::host::sums::sha256(b"one"), stamp, ..image() };
    assert!(image.check(&|| false).is_ok());
    std::fs::hard_link(&path, dir.path().join("backup")).unwrap();
    assert!(image.check(&|| false).is_ok());
    std::fs::write(&path, "two").unwrap();
    let said = image.check(&|| false).unwrap_err().to_string();
    assert!(
        said.contains("changed after its digest was taken: its digest is ") && said.contains(" now (repeat"),
        "{said}"
    );
    std::fs::remove_file(&path).unwrap();
    assert!(image.check(&|| false).is_err());
}

#[test]
fn binds_are_mounted_and_the_trainer_finds_their_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("cuda/lib64")).unwrap();
    std::fs::write(root.join("cuda/lib64/libnvrtc.so.13"), "nvrtc").unwrap();
    let binds = Value::List(vec![format!("{}:/usr/local/cuda:ro", root.join("cuda").display()).into()]);
    let cell = Cell { settings: [(BINDS.to_owned(), binds)].into(), ..Cell::default() };
    let image = Image { brought: brought(&cell, Loads::Cuda { nccl: false }).unwrap(), ..image() };
    let contained = image.contain(&start());
    let words = words(&contained);
    let mount = format!(r#"type=bind,"source={}/cuda","destination=/usr/local/cuda",ro"#, root.display());
    assert!(words.contains(&mount), "{words:?}");
    let end = ["/images/a.sif", "/.ledger/ledger", "worker", "--libraries", "/usr/local/cuda/lib64"];
    assert_eq!(words[words.len() - 5..], end);
    let facts = image.facts(&contained);
    let Value::Table(binds) = &facts["image.binds"] else { panic!("{facts:?}") };
    assert!(binds["/usr/local/cuda"].to_string().contains("libnvrtc.so.13 = sha256:"), "{binds:?}");
    // Without bound files the part is that of the image.
    assert_eq!(image_of(&image.part()), &part(Some(&"ab".repeat(32))));
    assert_eq!(Image { brought: Vec::new(), ..image }.part(), part(Some(&"ab".repeat(32))));
}

/// An image whose container program is a script that prints an answer.
fn answering(folder: &Path, answer: &str) -> Image {
    let path = folder.join("starter");
    std::fs::write(&path, format!("#!/bin/sh\n{answer}\n")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let tool = Tool { path, ..image().tool };
    Image { tool, ..image() }
}

#[test]
fn an_image_that_lacks_what_a_run_needs_is_refused_before_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let report = |missing: &str| {
        answering(dir.path(), &format!(r#"echo '{{"missing":{{{missing}}},"versions":{{"nvrtc":[13,0]}}}}'"#))
    };
    let bring = |image: Image, loads| image.bring(&Cell::default(), loads).map_err(|error| error.to_string());
    let on_gpus = Loads::Cuda { nccl: true };
    let all = r#""cuda_fp16.h":"","libnvrtc.so":"","libcuda.so.1":"","libnccl.so.2":"""#;
    assert_eq!(
        bring(report(all), on_gpus).unwrap_err(),
        "`libnvrtc.so` is not in the image `/images/a.sif` (bind /usr/local/cuda, or use the image of `containers/build.sh cuda`)"
    );
    let builtins = r#""libnvrtc.so":"libstdc++.so.6: cannot open shared object file""#;
    let said = bring(report(builtins), on_gpus).unwrap_err();
    assert!(said.starts_with("`libnvrtc.so` cannot be loaded (libstdc++.so.6: cannot open shared object file) in"));
    assert!(bring(report(r#""libcuda.so.1":"""#), on_gpus).unwrap_err().contains("from where `--nv` takes it"));
    assert!(bring(report(r#""libnccl.so.2":"""#), on_gpus).unwrap_err().contains("`libnccl.so.2` is not in"));
    let one = bring(report(r#""libnccl.so.2":"","libcudnn.so":"""#), Loads::Cuda { nccl: false }).unwrap();
    assert_eq!(one.notes.len(), 1, "{:?}", one.notes);
    assert!(one.notes[0].starts_with("`libcudnn.so` is not in the image: convolutions"), "{:?}", one.notes);
    // Without binds the identity has the image's digest, but not its versions.
    assert_eq!(one.versions, CudaVersions::default());
    assert!(bring(report(all), Loads::Nothing).unwrap().notes.is_empty(), "a CPU needs none of it");
    let silent = answering(dir.path(), "echo 'libgcc_s.so.1: cannot open shared object file' >&2; exit 127");
    let said = bring(silent.clone(), Loads::Nothing).unwrap_err();
    assert!(said.contains("does not start in `/images/a.sif`: libgcc_s.so.1: cannot open"), "{said}");
    assert!(bring(silent, Loads::Any).is_ok(), "another program is not asked");
}

#[test]
fn a_task_takes_the_digest_of_an_unchanged_image_from_its_submission() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sif");
    let mut sif = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x0002\0".to_vec();
    sif.resize(4096, 0);
    std::fs::write(&path, &sif).unwrap();
    let stamp = Stamp::of(&std::fs::metadata(&path).unwrap());
    let cell = |stamp: &str| {
        let path = path.display().to_string();
        let settings = [(IMAGE, path.as_str()), (EXPECTED, "of the submission"), (STAMP, stamp)];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.into())).into();
        Cell { settings, ..Cell::default() }
    };
    let digest = |stamp: &str| {
        let machine = Machine::default();
        machine.take_image(&cell(stamp));
        machine.image(&path).unwrap().0
    };
    assert_eq!(digest(&stamp.shared()), "of the submission");
    assert_eq!(digest("1 2 3 4"), crate::host::sums::sha256(&sif));
}

#[test]
fn binds_of_an_untrusted_record_are_taken_as_recorded() {
    let table = |fields: &[(&str, &str)]| {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
        Value::Table(fields.collect())
    };
    let container = table(&[("image", "sha256:ab"), ("headers", "sha256:cd")]);
    let cuda = table(&[("driver_api", "13.0"), ("nvrtc", "13.0")]);
    let parts = Parts { container: container.clone(), cuda, ..Parts::sample() };
    let here = table(&[("driver_api", "13.1")]);
    let (same, versions) = recorded(&parts, part(Some("ab")), here.clone());
    assert_eq!((same, versions), (container, table(&[("driver_api", "13.1"), ("nvrtc", "13.0")])));
    assert_eq!(recorded(&parts, part(Some("ef")), here).0, part(Some("ef")), "another image");
}
