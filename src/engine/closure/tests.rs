use super::*;
use crate::record::{Parts, Run, Table};
use std::fs;

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// A machine for an untrusted record.
fn untrusting() -> Machine {
    Machine::default().untrusting(&Run::new(Parts { program: Table::new().into(), ..Parts::sample() }))
}

#[test]
fn commands_that_start_a_python_program_are_understood() {
    let dir = folder(&[("train.py", ""), ("tool", "#!/usr/bin/env python3 -O\n"), ("run.sh", "#!/bin/sh\n")]);
    let script = |name: &str| Some(Entry::Script(name.to_owned()));
    let module = |name: &str| Some(Entry::Module(name.to_owned()));
    let cases = [
        ("python3 train.py --lr 1", script("train.py"), ""),
        ("python3 -u -W error -X dev train.py -m x", script("train.py"), ""),
        ("python3.11 -Es train.py", script("train.py"), "Es"),
        ("python -m pkg.train --epochs 2", module("pkg.train"), ""),
        ("python -um pkg", module("pkg"), ""),
        ("python -mpkg", module("pkg"), ""),
        ("env A=1 nice -n 5 python3 train.py", script("train.py"), ""),
        ("torchrun --nproc-per-node 4 train.py --lr 1", script("train.py"), ""),
        ("accelerate launch --mixed_precision no -m pkg.train", module("pkg.train"), ""),
        ("coverage run --branch train.py", script("train.py"), ""),
        ("nice kernprof -l train.py", script("train.py"), ""),
        ("uv run --with numpy train.py", script("train.py"), ""),
        ("uv run python -I train.py", script("train.py"), "I"),
        ("python -c import_x", Some(Entry::Code("import_x".to_owned())), ""),
        ("python -", None, ""),
    ];
    for (command, entry, flags) in cases {
        let found = started(&words(command), dir.path()).unwrap();
        assert_eq!((found.entry, found.flags.as_str()), (entry, flags), "{command}");
    }
    for (command, launched) in [
        ("python -m cProfile -o out.prof train.py", script("train.py")),
        ("python -m torch.distributed.run --nnodes 1 train.py", script("train.py")),
        ("python -m accelerate.commands.launch -m pkg.train", module("pkg.train")),
        ("python -m pkg.train --out results.py", None),
    ] {
        let found = started(&words(command), dir.path()).unwrap();
        assert!(matches!(found.entry, Some(Entry::Module(_))), "{command}");
        assert_eq!(found.launched, launched, "{command}");
    }
    let tool = started(&words("./tool x"), dir.path()).unwrap();
    assert_eq!(tool.interpreter, Interpreter::Word("python3".to_owned()));
    assert!(matches!(tool.entry, Some(Entry::Script(path)) if path.ends_with("tool")));
    for other in ["sh run.sh", "./run.sh", "./train", "sh -c python3"] {
        assert_eq!(started(&words(other), dir.path()), None, "{other}");
    }
    let launched = started(&words("torchrun train.py"), dir.path()).unwrap();
    assert_eq!((launched.interpreter, launched.also), (Interpreter::Of("torchrun".to_owned()), words("torch")));
}

#[test]
fn a_program_on_path_enters_by_its_content_but_a_shell_does_not() {
    assert!(executable(&words("cat train.txt")).is_some_and(|(name, path)| name == "cat" && path.is_file()));
    for other in ["sh run.sh", "python3 train.py", "./train", "no-such-program", "env python3 x"] {
        assert_eq!(executable(&words(other)), None, "{other}");
    }
}

#[test]
fn errors_name_the_missing_file_and_a_remedy() {
    let dir = folder(&[("train.py", ""), ("pyproject.toml", ""), ("env/bin/python", "")]);
    let machine = Machine::default();
    let said = |command: &str| closure(&words(command), dir.path(), false, &machine).unwrap_err().to_string();
    let missing = said("python99 train.py");
    assert!(missing.contains("`python99`") && missing.contains("identity = \"files\""), "{missing}");
    let script = said("python3 absent.py");
    assert!(script.contains("absent.py`, which is not a file"), "{script}");
    assert!(said("env A=1 PYTHONPATH=src python3 train.py").contains("set PYTHONPATH for `ledger run`"));
    let launched = said("torchrun --standalone absent.py");
    assert!(launched.contains("absent.py`, which is not a file"), "{launched}");
    let check = |command: &str, runs_here| check_program(&words(command), dir.path(), runs_here);
    let program = check("./absent --x 1", false).unwrap_err().to_string();
    assert!(program.contains("absent`, which is not a file"), "{program}");
    let program = check("no-such-program train.py", true).unwrap_err().to_string();
    assert!(program.contains("`no-such-program`, which is not on the PATH"), "{program}");
    // It may be on the PATH of a node.
    assert!(check("no-such-program train.py", false).is_ok() && check("./train.py", false).is_ok());
    let program = check("./train.py", true).unwrap_err().to_string();
    assert!(program.contains("`./train.py`, which is not executable (`chmod +x ./train.py`)"), "{program}");
    let untrusting = untrusting();
    let refused = closure(&words("./env/bin/python train.py"), dir.path(), false, &untrusting).unwrap_err().to_string();
    assert!(refused.contains("not an executable"), "{refused}");
}

#[test]
fn an_interpreter_that_only_a_record_names_is_not_started() {
    use std::os::unix::fs::PermissionsExt;
    let dir = folder(&[("train.py", ""), ("bin/python", "#!/bin/sh\ntouch executed\n")]);
    fs::set_permissions(dir.path().join("bin/python"), fs::Permissions::from_mode(0o700)).unwrap();
    let untrusting = untrusting();
    let refused = closure(&words("bin/python train.py"), dir.path(), false, &untrusting).unwrap_err().to_string();
    assert!(refused.contains("is not started without trust"), "{refused}");
    assert!(!dir.path().join("executed").exists());
}
