//! The identity of a Python program: its local files, its interpreter and its packages, and nothing else.

use crate::sandbox::Sandbox;
use std::fs;
use std::process::Command;

const TRAIN: &str = "import json, os\nimport model\n\
with open(os.environ['LEDGER_EVENTS'], 'a') as events:\n    \
events.write(json.dumps({'event': 'metric', 'name': 'accuracy', 'value': model.accuracy()}) + '\\n')\n";
const MODEL: &str = "def accuracy():\n    return 0.5\n";

/// A program of two files; none where there is no Python.
#[expect(clippy::print_stdout, reason = "whoever runs the tests learns what they leave out")]
fn program(extra: &str) -> Option<Sandbox> {
    let sandbox = Sandbox::new();
    if !has("python3") {
        println!("skipped: there is no python3");
        return None;
    }
    sandbox.write("train.py", TRAIN);
    sandbox.write("model.py", MODEL);
    manifest(&sandbox, extra);
    Some(sandbox)
}

fn manifest(sandbox: &Sandbox, extra: &str) {
    let text = "[model]\nname = 'toy'\n[hardware]\ndevice = 'cpu'\n[params]\nx = [1, 2]\n[program]\n\
                command = ['python3', 'train.py', '{x}']\n";
    sandbox.write("m.toml", format!("{text}{extra}\n"));
}

fn has(name: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|folder| std::path::Path::new(folder).join(name).exists())
}

fn planned(sandbox: &Sandbox) -> Vec<String> {
    let plan = sandbox.json(&["run", "m.toml", "--dry-run"], 0);
    plan["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap().to_owned()).collect()
}

fn executed(sandbox: &Sandbox) -> i64 {
    sandbox.json(&["run", "m.toml"], 0)["executed"].as_i64().unwrap()
}

fn git(sandbox: &Sandbox, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=n", "-c", "user.email=e@e"]).args(args).current_dir(sandbox.path("."));
    assert!(command.output().unwrap().status.success(), "{args:?}");
}

#[test]
fn a_commit_makes_no_run_missing_and_git_asks_for_it() {
    let Some(sandbox) = program("") else { return };
    git(&sandbox, &["init", "-q"]);
    git(&sandbox, &["add", "train.py", "model.py"]);
    git(&sandbox, &["commit", "-qm", "one"]);
    assert_eq!(executed(&sandbox), 2);
    let first = sandbox.json(&["show", "latest"], 0)["attempts"][0]["facts"]["git.commit"].clone();
    sandbox.write("README", "read me");
    git(&sandbox, &["add", "README"]);
    git(&sandbox, &["commit", "-qm", "two"]);
    assert_eq!(executed(&sandbox), 0);
    sandbox.run(&["run", "m.toml", "--repeat", "1"]).expect(0);
    let second = sandbox.json(&["show", "latest"], 0)["attempts"][0]["facts"]["git.commit"].clone();
    assert!(first.is_string() && second.is_string() && first != second, "{first} {second}");
    for command in ["best", "ls", "effects"] {
        let question: &[&str] = if command == "ls" { &[] } else { &["--model", "toy", "--metric", "accuracy"] };
        let said = sandbox.run(&[&[command], question].concat());
        assert!(!format!("{}{}", said.out, said.err).contains("git"), "{said:?}");
    }

    // A repository is needed whose commit can name the program.
    fs::rename(sandbox.path(".git"), sandbox.path("git-away")).unwrap();
    manifest(&sandbox, "identity = 'git'");
    let refused = sandbox.run(&["plan", "m.toml"]);
    assert!(refused.err.contains("`identity` of [program] is git, but git names no commit of `"), "{refused:?}");
    fs::rename(sandbox.path("git-away"), sandbox.path(".git")).unwrap();
    let before = planned(&sandbox);
    sandbox.write("README", "read me again");
    git(&sandbox, &["commit", "-qam", "three"]);
    let after = planned(&sandbox);
    assert!(before.iter().zip(&after).all(|(before, after)| before != after));
    // Commit and patch hold what git tracks, and nothing else.
    sandbox.write("model.py", format!("import loose\n{MODEL}"));
    git(&sandbox, &["commit", "-qam", "four"]);
    sandbox.write("loose.py", "");
    assert_eq!(executed(&sandbox), 2);
    let warnings = sandbox.json(&["show", "latest"], 0)["attempts"][0]["warnings"].to_string();
    assert!(warnings.contains("`loose.py`") && !warnings.contains("model.py"), "{warnings}");
}

#[test]
fn an_imported_file_that_changes_makes_another_run_and_is_named() {
    let Some(sandbox) = program("") else { return };
    assert_eq!((executed(&sandbox), executed(&sandbox)), (2, 0));
    sandbox.write("unrelated.py", "");
    assert_eq!(executed(&sandbox), 0);
    let shown = sandbox.json(&["show", "latest"], 0);
    let part = &shown["parts"]["program"]["value"];
    assert_eq!(part["files"].as_object().unwrap().keys().collect::<Vec<_>>(), ["model.py", "train.py"]);
    assert!(part["interpreter"].as_str().unwrap().starts_with("cpython 3."), "{part}");
    assert!(shown["attempts"][0]["warnings"].as_array().unwrap().is_empty(), "{shown}");
    let before = planned(&sandbox);

    sandbox.write("model.py", "def accuracy():\n    correct = 3\n    return correct / 4\n");
    let refused = sandbox.run(&["rerun", &before[0]]).complaint(5);
    assert!(refused.contains("program differs:\n  model.py: 2 lines"), "{refused}");
    assert_eq!(executed(&sandbox), 2);
    let after = planned(&sandbox);
    let why = sandbox.run(&["why", &before[0], &after[0]]).expect(1);
    assert!(why.starts_with("program differs:\n  model.py: 2 lines\n    - "), "{why}");
    assert!(why.ends_with("    +     correct = 3\n    +     return correct / 4\n"), "{why}");
    let document = sandbox.json(&["why", &before[0], &after[0]], 1);
    assert_eq!(document["parts"][0]["fields"][0]["lines"], 2, "{document}");
    let diff = sandbox.run(&["diff", &before[0], &after[0]]).expect(1);
    assert!(diff.contains("model.py: 2 lines") && !diff.contains("program.sources"), "{diff}");
    let best = sandbox.run(&["best", "--model", "toy", "--metric", "accuracy"]);
    assert!(best.err.contains("differ only in their program: model.py: 2 lines\n"), "{}", best.err);
    let head = best.out.lines().nth(1).unwrap_or_default();
    assert!(head.trim_end().ends_with("model.py"), "a column tells the versions apart: {}", best.out);
    sandbox.json(&["verify"], 0);
}

#[test]
fn another_version_of_a_package_makes_another_run() {
    let Some(sandbox) = program("") else { return };
    sandbox.write("train.py", format!("import fake\n{TRAIN}"));
    let install = |version: &str| {
        let info = format!("lib{version}/fake-{version}.dist-info");
        fs::create_dir_all(sandbox.path(&info)).unwrap();
        sandbox.write(&format!("lib{version}/fake.py"), "");
        sandbox.write(&format!("{info}/METADATA"), format!("Metadata-Version: 2.1\nName: fake\nVersion: {version}\n"));
        sandbox.write(&format!("{info}/top_level.txt"), "fake\n");
        sandbox.path(&format!("lib{version}"))
    };
    let (old, new) = (install("2.1.3"), install("2.0.2"));
    let run = |path: &std::path::Path, args: &[&str]| {
        let output = sandbox.command(args).env("PYTHONPATH", path).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, ..) = run(&old, &["run", "m.toml"]);
    assert_eq!(code, Some(0));
    let (_, again, _) = run(&old, &["run", "m.toml", "--json"]);
    assert!(again.contains("\"executed\": 0") || again.contains("\"executed\":0"), "{again}");
    let (code, _, refused) = run(&new, &["rerun", "latest"]);
    assert_eq!(code, Some(5), "{refused}");
    assert!(refused.contains("  fake 2.1.3 → 2.0.2\n"), "{refused}");
    let (_, other, _) = run(&new, &["run", "m.toml", "--json"]);
    assert!(other.contains("\"executed\": 2") || other.contains("\"executed\":2"), "{other}");
}

#[test]
fn a_file_that_only_the_run_loads_is_warned_of() {
    let Some(sandbox) = program("") else { return };
    sandbox.write(
        "model.py",
        "import importlib\nname = 'hid' + 'den'\nimportlib.import_module(name)\ndef accuracy():\n    return 1\n",
    );
    sandbox.write("hidden.py", "");
    assert_eq!(executed(&sandbox), 2);
    let warnings = sandbox.json(&["show", "latest"], 0)["attempts"][0]["warnings"].to_string();
    assert!(warnings.contains("`hidden.py` (add them to `files` of [program])"), "{warnings}");
    manifest(&sandbox, "files = ['hidden.py']");
    assert_eq!(executed(&sandbox), 2);
    let warnings = sandbox.json(&["show", "latest"], 0)["attempts"][0]["warnings"].clone();
    assert_eq!(warnings, serde_json::json!([]));
    assert!(sandbox.journals().is_empty());
    // A shell script starts a Python program that nobody can see beforehand.
    sandbox.write("run.sh", "exec python3 train.py\n");
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("'python3', 'train.py'", "'sh', 'run.sh'"));
    assert_eq!(executed(&sandbox), 2);
    let warnings = sandbox.json(&["show", "latest"], 0)["attempts"][0]["warnings"].to_string();
    assert!(warnings.contains("`model.py`, `train.py` (add them"), "{warnings}");
    assert!(warnings.contains("started Python behind `sh`: the versions of Python and its packages"), "{warnings}");
    // With its files declared the interpreter is still unknown.
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("files = ['hidden.py']", "files = ['hidden.py', 'model.py', 'train.py']"));
    let said = sandbox.run(&["run", "m.toml"]);
    assert!(said.err.contains("started Python behind `sh`") && !said.err.contains("loaded files"), "{}", said.err);
}

#[test]
fn a_module_of_another_folder_is_warned_of_and_compiled_from_its_source() {
    let Some(sandbox) = program("") else { return };
    fs::create_dir(sandbox.path("app")).unwrap();
    fs::create_dir(sandbox.path("shared")).unwrap();
    sandbox.write("app/train.py", format!("import sys\nsys.path.append('../shared')\n{TRAIN}"));
    let model = |value: &str, second: u64| {
        sandbox.write("shared/model.py", format!("def accuracy():\n    return {value}\n"));
        let model = fs::File::options().write(true).open(sandbox.path("shared/model.py")).unwrap();
        model.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(second)).unwrap();
    };
    model("0.5", 1_700_000_000);
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("app/m.toml", &text);
    let said = sandbox.run(&["run", "app/m.toml"]);
    let named = "loaded files that are not in its identity: `../shared/model.py` (add them to `files` of [program])";
    assert!(said.code == Some(0) && said.err.contains(named), "{}", said.err);
    // As many bytes, in the same second: Python's bytecode would be the one before.
    model("0.7", 1_700_000_000);
    let again = sandbox.run(&["run", "app/m.toml"]);
    assert!(again.err.contains("the program read `../shared/model.py`, which has changed since"), "{}", again.err);
    sandbox.write("app/m.toml", format!("{text}files = ['../shared/model.py']\n"));
    let said = sandbox.run(&["run", "app/m.toml"]);
    assert!(said.code == Some(0) && !said.err.contains("identity"), "{}", said.err);
    let accuracy = &sandbox.json(&["show", "latest"], 0)["attempts"][0]["metrics"]["accuracy"]["value"];
    assert_eq!(accuracy.as_f64(), Some(0.7));
    // A pack brings it along, beside the program's folder.
    sandbox.run(&["pack", "latest", "-o", "p.pack"]).expect(0);
    for folder in ["app", "shared"] {
        fs::rename(sandbox.path(folder), sandbox.path(&format!("{folder}.moved"))).unwrap();
    }
    let replayed = sandbox.run(&["replay", "p.pack", "--trust"]);
    assert!(replayed.code == Some(0) && replayed.out.contains("identical"), "{replayed:?}");
    sandbox.run(&["replay", "p.pack", "--sources", "kept"]).expect(0);
    assert!(sandbox.path("kept/app/train.py").is_file() && sandbox.path("kept/shared/model.py").is_file());
}

#[test]
fn a_file_that_others_change_is_not_taken_for_an_output() {
    let Some(sandbox) = program("") else { return };
    // Another process is the editor: once after the file was read, once before.
    let model = "import subprocess\nedit = lambda name: subprocess.run(['sh', '-c', 'echo 1 > ' + name])\n\
                 open('after.json').read()\nedit('after.json')\nedit('before.json')\nopen('before.json').read()\n\
                 open('log.txt', 'w').write('x')\nopen('log.txt').read()\n\
                 state = open('state.txt').read()\nopen('state.txt', 'w').write(state)\n\
                 def accuracy():\n    return 0.5\n";
    sandbox.write("model.py", model);
    for file in ["after.json", "before.json", "state.txt"] {
        sandbox.write(file, "2");
    }
    sandbox.run(&["run", "m.toml", "--only", "params.x == 1"]).expect(0);
    let attempt = sandbox.json(&["show", "latest"], 0)["attempts"][0].clone();
    let warnings = attempt["warnings"].to_string();
    let read = "read files that are not in its identity: `after.json`, `before.json`, `state.txt` (";
    let changed = "files that the program read changed while it ran: `after.json`, `before.json` (";
    assert!(warnings.contains(read) && warnings.contains(changed), "{warnings}");
    assert!(!warnings.contains("log.txt"), "its own output: {warnings}");
    let again = sandbox.run(&["run", "m.toml", "--only", "params.x == 1"]);
    for file in ["after.json", "before.json"] {
        assert!(again.err.contains(&format!("the program read `{file}`, which has changed since")), "{}", again.err);
    }
}

#[test]
fn a_python_that_tells_nothing_is_said_to() {
    let Some(sandbox) = program("") else { return };
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("'python3', ", "'python3', '-E', "));
    let said = sandbox.run(&["run", "m.toml"]);
    assert!(said.code == Some(0) && said.err.contains("no Python process of the program reported"), "{}", said.err);
}

#[test]
fn a_file_of_the_repository_beside_the_programs_folder_is_warned_of() {
    let Some(sandbox) = program("") else { return };
    git(&sandbox, &["init", "-q"]);
    for folder in ["app", "conf"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    sandbox.write("app/model.py", "def accuracy():\n    return int(open('../conf/base.json').read())\n");
    sandbox.write("conf/base.json", "1");
    fs::rename(sandbox.path("train.py"), sandbox.path("app/train.py")).unwrap();
    fs::rename(sandbox.path("m.toml"), sandbox.path("app/m.toml")).unwrap();
    let said = sandbox.run(&["run", "app/m.toml"]);
    assert!(said.err.contains("read files that are not in its identity: `../conf/base.json` ("), "{}", said.err);
}

#[test]
fn another_pattern_of_a_metric_makes_another_run() {
    let Some(sandbox) = program("") else { return };
    sandbox.write("train.py", "print('train 0.5')\nprint('test 0.4')\n");
    let pattern = |text: &str| manifest(&sandbox, &format!("metrics = {{ accuracy = '{text} (\\S+)' }}"));
    pattern("train");
    assert_eq!((executed(&sandbox), executed(&sandbox)), (2, 0));
    pattern("test");
    assert_eq!(executed(&sandbox), 2);
    let best = ["best", "--model", "toy", "--metric", "accuracy", "--where", "params.x == 1"];
    let places = sandbox.json(&best, 0)["places"].clone();
    let means: Vec<_> = places.as_array().unwrap().iter().map(|place| place["mean"].as_f64()).collect();
    assert_eq!(means, [Some(0.5), Some(0.4)]);
    let said = sandbox.run(&best).err;
    assert!(said.contains("metrics.accuracy train (\\S+) → test (\\S+)"), "{said}");
    sandbox.run(&["rerun", "latest"]).expect(0);
}

#[test]
fn a_file_that_only_the_run_reads_is_warned_of_and_named_once_it_changed() {
    let Some(sandbox) = program("") else { return };
    sandbox.write(
        "model.py",
        "import os\nopen('made.txt', 'w').write('x')\nopen('made.txt').read()\nos.listdir('.')\n\
         def accuracy():\n    return int(open('config/size.txt').read())\n",
    );
    fs::create_dir(sandbox.path("config")).unwrap();
    sandbox.write("config/size.txt", "1");
    let said = sandbox.run(&["run", "m.toml"]);
    let named =
        "the program read files that are not in its identity: `config/size.txt` (add them to `files` of [program])";
    assert!(said.code == Some(0) && said.err.contains(named), "{}", said.err);
    let again = sandbox.run(&["run", "m.toml"]);
    assert!(!again.err.contains("size.txt"), "unchanged: {}", again.err);
    sandbox.write("config/size.txt", "0");
    let again = sandbox.run(&["run", "m.toml"]);
    let changed = "warning: 2 runs sealed before: the program read `config/size.txt`, which has changed since";
    assert!(again.code == Some(0) && again.err.contains(changed), "{}", again.err);
    let rerun = sandbox.run(&["rerun", "latest"]);
    assert!(rerun.code == Some(5) && rerun.err.contains("program.read.config/size.txt"), "{}", rerun.err);
    let best = sandbox.run(&["best", "--model", "toy", "--metric", "accuracy"]);
    assert!(best.err.contains("mixes attempts that read different `config/size.txt` (`ledger diff "), "{}", best.err);
    manifest(&sandbox, "files = ['config/size.txt']");
    let said = sandbox.run(&["run", "m.toml"]);
    let new = "note: 2 of 2 runs are new because the program changed: config/size.txt: only now\n";
    assert!(
        said.code == Some(0) && said.err.contains(new) && !said.err.contains("not in its identity"),
        "{}",
        said.err
    );
}

#[test]
fn python_files_that_no_import_names_are_warned_of_and_named_once_they_changed() {
    let Some(sandbox) = program("") else { return };
    sandbox.write(
        "model.py",
        "import importlib.util\nspec = importlib.util.spec_from_file_location('e', 'extra' + '.py')\n\
         module = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\n\
         exec(open('inc' + '.py').read())\nname = 'plug' + 'in'\n__import__(name)\ndef accuracy():\n    return 1\n",
    );
    for file in ["extra.py", "inc.py", "plugin.py"] {
        sandbox.write(file, "");
    }
    let said = sandbox.run(&["run", "m.toml"]);
    let (loaded, read) = (
        "loaded files that are not in its identity: `plugin.py` (",
        "read files that are not in its identity: `extra.py`, `inc.py` (",
    );
    assert!(said.err.contains(loaded) && said.err.contains(read), "{}", said.err);
    sandbox.run(&["pack", "latest", "-o", "all.ledger"]).expect(0);
    let replay = sandbox.run(&["replay", "all.ledger"]);
    assert!(replay.err.contains("note: not in the pack: the program loaded files"), "{replay:?}");
    for file in ["extra.py", "inc.py", "plugin.py"] {
        sandbox.write(file, "pass\n");
        let again = sandbox.run(&["run", "m.toml"]);
        assert!(again.err.contains(&format!("the program read `{file}`, which has changed since")), "{}", again.err);
    }
    let rerun = sandbox.run(&["rerun", "latest"]);
    assert!(
        rerun.err.contains("program.read.plugin.py") && rerun.err.contains("program.read.extra.py"),
        "{}",
        rerun.err
    );
    manifest(&sandbox, "files = ['extra.py', 'inc.py', 'plugin.py']");
    let said = sandbox.run(&["run", "m.toml"]);
    assert!(said.code == Some(0) && !said.err.contains("identity"), "{}", said.err);
}

#[test]
fn a_file_that_the_program_writes_and_its_command_names_is_warned_of() {
    let Some(sandbox) = program("") else { return };
    sandbox.write("model.py", "import sys\nopen(sys.argv[1], 'w').write('x')\ndef accuracy():\n    return 1\n");
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    let named = |word: &str| sandbox.write("m.toml", text.replace("'train.py'", &format!("'train.py', '{word}'")));
    named("out.txt");
    assert_eq!(executed(&sandbox), 2);
    let warnings = sandbox.json(&["show", "latest"], 0)["attempts"][0]["warnings"].to_string();
    assert!(warnings.contains("the program wrote `out.txt`, which its command names"), "{warnings}");
    // As a parameter it is no file of the program, before and after.
    named("{out}");
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("x = [1, 2]", "x = [1, 2]\nout = 'other.txt'"));
    assert_eq!((executed(&sandbox), executed(&sandbox)), (2, 0));
    let warnings = sandbox.json(&["show", "latest"], 0)["attempts"][0]["warnings"].clone();
    assert_eq!(warnings, serde_json::json!([]));
}

#[test]
fn a_program_is_seen_behind_a_module_that_starts_it() {
    let Some(sandbox) = program("") else { return };
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("'python3', ", "'nice', 'python3', '-m', 'cProfile', "));
    assert_eq!(executed(&sandbox), 2);
    let shown = sandbox.json(&["show", "latest"], 0);
    let files = shown["parts"]["program"]["value"]["files"].as_object().unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["model.py", "train.py"]);
    assert_eq!(shown["attempts"][0]["warnings"], serde_json::json!([]));
    assert_eq!(executed(&sandbox), 0);
}

#[test]
fn a_folder_is_a_program_as_python_takes_it() {
    let Some(sandbox) = program("") else { return };
    fs::create_dir(sandbox.path("app")).unwrap();
    fs::rename(sandbox.path("train.py"), sandbox.path("app/__main__.py")).unwrap();
    fs::rename(sandbox.path("model.py"), sandbox.path("app/model.py")).unwrap();
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("'train.py'", "'app'"));
    assert_eq!(executed(&sandbox), 2);
    let shown = sandbox.json(&["show", "latest"], 0);
    let files = shown["parts"]["program"]["value"]["files"].as_object().unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["app/__main__.py", "app/model.py"]);
    assert_eq!(shown["attempts"][0]["warnings"], serde_json::json!([]));
}

#[test]
fn declared_files_alone_are_an_identity() {
    let Some(sandbox) = program("identity = 'files'\nfiles = ['train.py']") else { return };
    let before = planned(&sandbox);
    assert_eq!(executed(&sandbox), 2);
    let warnings = sandbox.json(&["show", "latest"], 0)["attempts"][0]["warnings"].to_string();
    assert!(warnings.contains("`model.py`") && !warnings.contains("train.py"), "{warnings}");
    sandbox.write("model.py", "def accuracy():\n    return 1\n");
    assert_eq!(planned(&sandbox), before);
    assert!(sandbox.run(&["run", "m.toml"]).err.contains("model.py"), "the result is an old one");
    sandbox.write("train.py", format!("{TRAIN}# changed\n"));
    assert_ne!(planned(&sandbox), before);
    manifest(&sandbox, "identity = 'files'");
    let refused = sandbox.run(&["run", "m.toml"]).complaint(2);
    assert!(refused.contains("program.files names none"), "{refused}");
    manifest(&sandbox, "identity = 'everything'");
    let refused = sandbox.run(&["run", "m.toml"]).complaint(2);
    assert!(refused.contains("it must be closure, files or git"), "{refused}");
}

#[test]
fn what_cannot_be_started_or_parsed_is_said_in_a_line() {
    let Some(sandbox) = program("") else { return };
    sandbox.write("model.py", "def accuracy(:\n");
    sandbox.run(&["run", "m.toml"]).expect(4);
    let warnings = sandbox.json(&["show", "latest"], 0)["attempts"][0]["warnings"].to_string();
    assert!(warnings.contains("the imports of `model.py` are unknown: line 1"), "{warnings}");
    fs::remove_file(sandbox.path("train.py")).unwrap();
    let refused = sandbox.run(&["run", "m.toml"]).complaint(2);
    assert!(refused.contains("train.py`, which is not a file"), "{refused}");
    sandbox.write("train.py", TRAIN);
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("python3", "python3.99"));
    let refused = sandbox.run(&["run", "m.toml"]).complaint(2);
    assert!(refused.contains("`python3.99`, which is not on the PATH"), "{refused}");
    sandbox.write("start.sh", "#!/bin/sh\n");
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("'python3.99', 'train.py'", "'./start.sh'"));
    let refused = sandbox.run(&["run", "m.toml"]).complaint(2);
    assert!(
        refused.contains("m.toml:8:12: the command starts `./start.sh`, which is not executable (`chmod +x"),
        "{refused}"
    );
}

#[test]
fn a_replay_brings_the_program_along_and_says_the_same_with_trust() {
    let Some(from) = program("") else { return };
    executed(&from);
    from.run(&["pack", "latest", "-o", "best.pack"]).expect(0);
    let to = Sandbox::new();
    fs::copy(from.path("best.pack"), to.path("best.pack")).unwrap();
    let temporary = to.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let replay = |args: &[&str]| {
        let args = [&["replay", "best.pack"], args].concat();
        let output = to.command(&args).env("TMPDIR", &temporary).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    // The folder of the record holds another program by now.
    from.write("model.py", "def accuracy():\n    return 0.25\n");
    let (code, said) = replay(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("this machine gives the same run id"), "{said}");
    assert!(!to.ledger_dir().exists(), "nothing is written without trust");
    let (code, said) = replay(&["--trust"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("identical"), "{said}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "private folders are gone");
    let (code, said) = replay(&["--sources", "kept"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fs::read_to_string(to.path("kept/model.py")).unwrap(), MODEL);
    let (code, said) = replay(&["--sources", "kept"]);
    assert_eq!(code, Some(2), "{said}");
    // With another folder it is another run, and both ways say so.
    let other = from.path(".").display().to_string();
    let (code, said) = replay(&["--in", &other]);
    assert!(code == Some(1) && said.contains("model.py: 1 line\n"), "{said}");
    let (code, said) = replay(&["--in", &other, "--trust"]);
    assert!(code == Some(5) && said.contains("model.py: 1 line\n"), "{said}");
    let unpacked = to.run(&["unpack", "best.pack"]);
    assert!(unpacked.err.contains("gives the same run id here"), "{}", unpacked.err);
}

#[test]
fn a_replay_finds_an_interpreter_in_the_programs_own_folder() {
    let Some(from) = program("") else { return };
    let folders = ["/usr/local/bin", "/usr/bin", "/bin"].map(std::path::Path::new);
    let python = folders.iter().map(|folder| folder.join("python3")).find(|path| path.exists()).unwrap();
    fs::create_dir_all(from.path("v/bin")).unwrap();
    std::os::unix::fs::symlink(&python, from.path("v/bin/python")).unwrap();
    from.write("v/pyvenv.cfg", format!("home = {}\n", python.parent().unwrap().display()));
    let text = fs::read_to_string(from.path("m.toml")).unwrap();
    from.write("m.toml", text.replace("'python3'", "'v/bin/python'"));
    assert_eq!(executed(&from), 2);
    from.run(&["pack", "latest", "-o", "best.pack"]).expect(0);
    let to = Sandbox::new();
    fs::copy(from.path("best.pack"), to.path("best.pack")).unwrap();
    let temporary = to.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let replay = |args: &[&str]| {
        let args = [&["replay", "best.pack"], args].concat();
        let output = to.command(&args).env("TMPDIR", &temporary).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let untrusted = "`v/bin/python` was not started: its version and packages are the recorded ones";
    for is_changed in [false, true] {
        let (code, said) = replay(&[]);
        assert!(
            code == Some(0)
                && said.contains("the files give the same run id; what the notes name was not checked")
                && said.contains(untrusted),
            "{said}"
        );
        let (code, said) = replay(&["--trust"]);
        assert!(code == Some(0) && said.contains("identical"), "{said}");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "private folders are gone");
        if !is_changed {
            from.write("model.py", "def accuracy():\n    return 0.25\n");
        }
    }
    fs::rename(from.path("v"), from.path("w")).unwrap();
    for args in [&[][..], &["--trust"][..]] {
        let (code, said) = replay(args);
        assert!(code == Some(2) && said.contains("its interpreter `v/bin/python` is not in the pack"), "{said}");
    }
    let text = fs::read_to_string(from.path("m.toml")).unwrap();
    from.write("app.toml", text.replace("v/bin/python", "../w/bin/python"));
    fs::create_dir(from.path("app")).unwrap();
    for file in ["app.toml", "train.py", "model.py"] {
        fs::rename(from.path(file), from.path("app").join(file.replace("app.toml", "m.toml"))).unwrap();
    }
    assert_eq!(from.json(&["run", "app/m.toml"], 0)["executed"].as_i64(), Some(2));
    from.run(&["pack", "latest", "-o", "outside.pack"]).expect(0);
    fs::copy(from.path("outside.pack"), to.path("best.pack")).unwrap();
    from.write("app/model.py", "def accuracy():\n    return 0.75\n");
    let (code, said) = replay(&[]);
    assert!(
        code == Some(2) && said.contains("`../w/bin/python` is named by a way out of the program's folder"),
        "{said}"
    );
}

#[test]
fn versions_of_a_program_are_named_beside_a_ranking() {
    let Some(sandbox) = program("") else { return };
    executed(&sandbox);
    let before = planned(&sandbox);
    sandbox.write("model.py", "def accuracy():\n    correct = 3\n    return correct / 4\n");
    executed(&sandbox);
    let said = sandbox.run(&["best", "--model", "toy", "--metric", "accuracy", "--where", "params.x == 1"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("note: #1 and #2 differ only in their program: model.py: 2 lines\n"), "{}", said.err);
    let args = ["plot", "distribution", "--model", "toy", "--metric", "accuracy", "--where", "params.x == 1"];
    let plot = sandbox.run(&args).expect(0);
    for run in [&planned(&sandbox)[0], &before[0]] {
        assert!(plot.contains(&format!("toy {}", &run[..8])), "{plot}");
    }
}

#[test]
fn a_packed_name_is_no_way_out_of_the_folder() {
    let Some(from) = program("") else { return };
    let outside = from.path("outside.txt");
    fs::write(&outside, "text").unwrap();
    manifest(&from, &format!("files = ['{}']", outside.display()));
    executed(&from);
    from.run(&["pack", "latest", "-o", "best.pack"]).expect(0);
    fs::remove_file(&outside).unwrap();
    let to = Sandbox::new();
    fs::copy(from.path("best.pack"), to.path("best.pack")).unwrap();
    to.run(&["replay", "best.pack", "--sources", "a"]).complaint(2);
    assert!(to.path("a/train.py").exists() && !outside.exists());
}
