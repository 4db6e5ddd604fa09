use super::*;
use crate::environment;
use std::fs;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// Queries the host's Python about a folder; `None` if there is no Python.
fn ask(directory: &Path, entry: Entry, flags: &str) -> Option<Imports> {
    ask_launched(directory, entry, None, flags)
}

fn ask_launched(directory: &Path, entry: Entry, launched: Option<Entry>, flags: &str) -> Option<Imports> {
    let interpreter = python()?;
    let directory = directory.canonicalize().unwrap();
    let flags = flags.to_owned();
    Some(imports(&Question { interpreter, flags, entry, launched, also: Vec::new(), directory }).unwrap())
}

fn python() -> Option<PathBuf> {
    let found = environment::which("python3");
    if found.is_none() {
        eprintln!("skipped: there is no python3");
    }
    found
}

fn write(directory: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn names(directory: &Path, found: &Imports) -> Vec<String> {
    let directory = directory.canonicalize().unwrap();
    found.files.keys().map(|path| path.strip_prefix(&directory).unwrap().display().to_string()).collect()
}

#[test]
fn imports_are_followed_through_packages_namespaces_and_conditions() {
    let dir = tempfile::tempdir().unwrap();
    let script = "import os, json\nfrom pkg import a\nfrom pkg.sub import *\ntry:\n    import absent\nexcept ImportError:\n    pass\n\
                  def late():\n    import importlib\n    importlib.import_module('plugin')\nif False:\n    import space.inner\n";
    let files = [
        ("train.py", script),
        ("pkg/__init__.py", ""),
        ("pkg/a.py", "from . import b\nfrom .sub import q"),
        ("pkg/b.py", "import random"),
        ("pkg/unused.py", "raise SystemExit('imported')"),
        ("pkg/sub/__init__.py", "__all__ = ['r']"),
        ("pkg/sub/q.py", "from .. import c"),
        ("pkg/sub/r.py", ""),
        ("pkg/c.py", ""),
        ("plugin.py", ""),
        ("space/inner.py", ""),
        // A local module takes precedence over one of the standard library.
        ("random.py", "open('executed', 'w')"),
    ];
    write(dir.path(), &files);
    let Some(found) = ask(dir.path(), Entry::Script("train.py".to_owned()), "") else { return };
    let expected = [
        "pkg/__init__.py",
        "pkg/a.py",
        "pkg/b.py",
        "pkg/c.py",
        "pkg/sub/__init__.py",
        "pkg/sub/q.py",
        "pkg/sub/r.py",
        "plugin.py",
        "random.py",
        "space/inner.py",
        "train.py",
    ];
    assert_eq!(names(dir.path(), &found), expected);
    assert!(found.interpreter.contains(" 3."), "{}", found.interpreter);
    assert!(!dir.path().join("executed").exists() && !dir.path().join("__pycache__").exists());
    let module = ask(dir.path(), Entry::Module("pkg.a".to_owned()), "").unwrap();
    assert!(names(dir.path(), &module).contains(&"pkg/b.py".to_owned()));
    let code = ask(dir.path(), Entry::Code("import plugin".to_owned()), "").unwrap();
    assert_eq!(names(dir.path(), &code), ["plugin.py"]);
    let isolated = ask(dir.path(), Entry::Script("train.py".to_owned()), "I").unwrap();
    assert_eq!(names(dir.path(), &isolated), ["train.py"]);
}

#[test]
fn a_module_that_is_not_local_starts_the_program_among_its_arguments() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("sub/train.py", "import part, root"), ("sub/part.py", ""), ("root.py", ""), ("tool.py", "")]);
    let train = || Some(Entry::Script("sub/train.py".to_owned()));
    let of = |module: &str| ask_launched(dir.path(), Entry::Module(module.to_owned()), train(), "");
    let Some(profiled) = of("cProfile") else { return };
    assert_eq!(names(dir.path(), &profiled), ["root.py", "sub/part.py", "sub/train.py"]);
    assert_eq!(names(dir.path(), &of("no_such_module").unwrap()), ["root.py", "sub/part.py", "sub/train.py"]);
    // For a local module, the file is an ordinary argument.
    assert_eq!(names(dir.path(), &of("tool").unwrap()), ["tool.py"]);
}

#[test]
fn a_script_is_parsed_whatever_its_name_ends_in() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("train", "import part"), ("part.py", "")]);
    let Some(found) = ask(dir.path(), Entry::Script("train".to_owned()), "") else { return };
    assert_eq!(names(dir.path(), &found), ["part.py", "train"]);
}

#[test]
fn a_file_that_cannot_be_parsed_is_kept_and_named() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("train.py", "import broken\n"), ("broken.py", "x = 1\ndef f(:\n")]);
    let Some(found) = ask(dir.path(), Entry::Script("train.py".to_owned()), "") else { return };
    assert_eq!(names(dir.path(), &found), ["broken.py", "train.py"]);
    assert!(found.notes[0].0.ends_with("broken.py") && found.notes[0].1.starts_with("line 2"), "{:?}", found.notes);
}

#[test]
fn distributions_and_local_files_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let metadata = "Metadata-Version: 2.1\nName: Some_Package\nVersion: 2.0.2\n";
    let files = [
        ("train.py", "import pack.inner\nimport mine"),
        ("pack/__init__.py", ""),
        ("pack/inner.py", ""),
        ("some_package-2.0.2.dist-info/METADATA", metadata),
        ("some_package-2.0.2.dist-info/top_level.txt", "pack\n"),
        // The metadata of an editable installation beside the sources does not make them a package.
        ("mine.py", ""),
        ("mine.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: mine\nVersion: 1\n"),
        ("mine.egg-info/top_level.txt", "mine\n"),
    ];
    write(dir.path(), &files);
    let Some(found) = ask(dir.path(), Entry::Script("train.py".to_owned()), "") else { return };
    assert_eq!(found.packages, [("some-package".to_owned(), "2.0.2".to_owned())].into());
    assert_eq!(names(dir.path(), &found), ["mine.py", "train.py"]);
}

#[test]
fn loaded_files_are_listed_without_affecting_the_program() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = "import sys, part\nprint([entry for entry in sys.path if 'hook' in entry])\n";
    let files = [
        ("hook/sitecustomize.py", LOADED),
        ("lib/sitecustomize.py", "print('the next one')"),
        ("train.py", script),
        ("part.py", ""),
        ("list", ""),
    ];
    write(dir.path(), &files);
    let run = |path: &str, list: &str| {
        let mut command = Command::new(&python);
        command.arg("train.py").current_dir(dir.path()).env("PYTHONPATH", path).env("LEDGER_LOADED", list);
        let said = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stderr), "");
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let (hook, lib, list) = (dir.path().join("hook"), dir.path().join("lib"), dir.path().join("list"));
    let (hook, list) = (hook.display().to_string(), list.display().to_string());
    let chained = run(&format!("{hook}:{}", lib.display()), &list);
    assert_eq!(chained, "the next one\n[]\n");
    let listed = fs::read_to_string(&list).unwrap();
    let listed: Vec<&str> = listed.split('\0').filter_map(|path| path.rsplit('/').next()).collect();
    assert!(listed.contains(&"part.py") && listed.contains(&"train.py"), "{listed:?}");
    // A missing list does not affect the program.
    assert!(run(&hook, "/nonexistent/list").ends_with("[]\n"));
}

/// Executes `train.py` in a folder with the hook. Returns the resulting list: type, and the last part of each path.
fn listed(dir: &Path, python: &Path, path: &str) -> Vec<String> {
    write(dir, &[("hook/sitecustomize.py", LOADED), ("list", "")]);
    let mut command = Command::new(python);
    let path = format!("{}:{path}", dir.join("hook").display());
    command.arg("train.py").current_dir(dir).env("PYTHONPATH", path).env("LEDGER_LOADED", dir.join("list"));
    let said = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stderr), "");
    let text = fs::read_to_string(dir.join("list")).unwrap();
    let name = |entry: &str| Some(format!("{}{}", entry.get(..1)?, entry.rsplit('/').next()?));
    text.split('\0').filter_map(name).collect()
}

#[test]
fn processes_that_end_early_list_what_they_read() {
    let Some(python) = auditing_python() else { return };
    let dir = tempfile::tempdir().unwrap();
    // `with` terminates the workers of the pool.
    let script = "import multiprocessing, os\n\
                  def work(way):\n    __import__('part_of_' + way)\n    open('read_by_' + way).read()\n\
                  if __name__ == '__main__':\n    \
                  for way in ('fork', 'spawn'):\n        \
                  with multiprocessing.get_context(way).Pool(1) as pool:\n            pool.map(work, [way])\n    \
                  if os.fork() == 0:\n        work('exit')\n        os._exit(0)\n    os.wait()\n";
    write(dir.path(), &[("train.py", script)]);
    for way in ["fork", "spawn", "exit"] {
        write(dir.path(), &[(&format!("part_of_{way}.py"), ""), (&format!("read_by_{way}"), "")]);
    }
    let listed = listed(dir.path(), &python, "");
    for way in ["fork", "spawn", "exit"] {
        let (module, file) = (format!("Rpart_of_{way}.py"), format!("Rread_by_{way}"));
        assert!(listed.contains(&module) && listed.contains(&file), "{way}: {listed:?}");
    }
}

/// Returns a Python that reports opened files through audit hooks, as all do from 3.8 on.
fn auditing_python() -> Option<PathBuf> {
    let tells = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", "import sys; sys.exit(sys.version_info < (3, 8))"]).status();
        asked.is_ok_and(|status| status.success())
    };
    let found = environment::which("python3").filter(tells);
    if found.is_none() {
        eprintln!("skipped: there is no python3 of 3.8 or later");
    }
    found
}

#[test]
fn written_and_read_files_are_distinguished() {
    let Some(python) = auditing_python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = "import os, pathlib, shutil, sys\nsys.path[:0] = [pathlib.Path('lib'), b'lib']\nimport part\n\
                  open('made', 'w').write('x')\nos.rename('made', 'moved')\nopen('moved').read()\n\
                  open('both', 'r+').close()\nos.makedirs('out')\nshutil.rmtree('out')\nopen('.env').close()\n\
                  open('plain').read()\nopen('plain').read()\nassert part.__cached__\n";
    let files = [("train.py", script), ("part.py", ""), ("both", ""), (".env", ""), ("plain", "")];
    write(dir.path(), &files);
    let listed = listed(dir.path(), &python, "");
    let of = |name: &str| -> Vec<&str> {
        listed.iter().filter(|entry| entry[1..] == *name).map(|entry| &entry[..1]).collect()
    };
    let expected = [("made", "W"), ("moved", "WR"), ("both", "RW"), ("plain", "R"), (".env", ""), ("out", "")];
    for (name, kinds) in expected {
        assert_eq!(of(name).concat(), kinds, "{name}: {listed:?}");
    }
}

#[test]
fn installed_files_are_not_listed() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = "import sys\nsys.path.append('../shared')\nimport py_compile, packed, of_shared\npy_compile.compile('part.py')\n";
    let files = [
        ("app/train.py", script),
        ("app/part.py", ""),
        ("shared/of_shared.py", ""),
        ("target/packed.py", ""),
        ("target/packed-1.0.dist-info/METADATA", ""),
        ("site/sitecustomize.py", ""),
    ];
    write(dir.path(), &files);
    let path = ["target", "site"].map(|name| dir.path().join(name).display().to_string()).join(":");
    let listed = listed(&dir.path().join("app"), &python, &path);
    assert!(listed.contains(&"Lof_shared.py".to_owned()), "{listed:?}");
    assert!(!listed.iter().any(|name| name.ends_with("packed.py") || name.ends_with("customize.py")), "{listed:?}");
    assert!(dir.path().join("app/__pycache__").is_dir(), "py_compile finds the place of bytecode");
}

#[test]
fn bytecode_of_another_source_is_not_executed() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &[("hook/sitecustomize.py", LOADED), ("train.py", "import part\nprint(part.width)"), ("list", "")],
    );
    let part = dir.path().join("part.py");
    let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let says = |text: &str, with_hook: bool| {
        fs::write(&part, text).unwrap();
        fs::File::options().write(true).open(&part).unwrap().set_modified(at).unwrap();
        let mut command = Command::new(&python);
        command.arg("train.py").current_dir(dir.path()).env_remove("PYTHONDONTWRITEBYTECODE").env_remove("PYTHONPATH");
        if with_hook {
            let (hook, list) = (dir.path().join("hook"), dir.path().join("list"));
            command.env("PYTHONPATH", hook).env("LEDGER_LOADED", list);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!((says("width = 1", false).as_str(), says("width = 2", false).as_str()), ("1\n", "1\n"), "Python's own");
    assert_eq!((says("width = 3", true).as_str(), says("width = 4", true).as_str()), ("3\n", "4\n"));
}

#[test]
fn answers_of_the_interpreter_are_parsed_or_refused() {
    let read_text = |text: &str| read(&text.replace('|', "\0"));
    let found = read_text("file|/a/b.py|/a|package|numpy|2.0.2|python|cpython|3.11.7|").unwrap();
    assert_eq!((found.interpreter.as_str(), found.files.len()), ("cpython 3.11.7", 1));
    for wrong in ["", "python|cpython", "file|/a|/|", "python|cpython|3|x|y|z|", "python|cpython|3|file|"] {
        assert_eq!(read_text(wrong), None, "{wrong}");
    }
}

#[test]
fn an_interpreter_without_an_answer_is_an_error() {
    let entry = Entry::Script("train.py".to_owned());
    let Some(interpreter) = environment::which("false") else { return };
    let (flags, launched, also, directory) = (String::new(), None, Vec::new(), "/".into());
    let question = Question { interpreter, flags, entry, launched, also, directory };
    let error = imports(&question).unwrap_err().to_string();
    assert!(error.ends_with("could not list the imports: it gave no answer"), "{error}");
}

#[test]
fn python_interpreters_are_recognised_by_name() {
    for name in ["python", "python3", "python3.12", ".venv/bin/python", "/usr/bin/pypy3"] {
        assert!(is_python(name), "{name}");
    }
    for name in ["pythonic", "python3-config", "sh", "ipython", ""] {
        assert!(!is_python(name), "{name}");
    }
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("a", "#!/usr/bin/env -S python3 -u\n"), ("b", "#!/bin/sh\n"), ("c", "x")]);
    assert_eq!(shebang(&dir.path().join("a")).unwrap(), ["python3", "-u"]);
    assert_eq!((shebang(&dir.path().join("b")), shebang(&dir.path().join("c"))), (None, None));
}
