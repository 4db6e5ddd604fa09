"""Runs the blocks of the Python tutorial as a reader would, with the `ledger` and the package on the path.

Usage: tutorial.py PAGE FOLDER. A block that begins with `# file: NAME` is written there. After each `train.py` the manifest is run. The
other blocks have a name in their first line; those whose package is missing are only compiled, and named.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

NEEDS = {"torch": "torch", "huggingface": "transformers", "lightning": "lightning", "read": "pyarrow", "attach": "json"}


def run(words, folder):
    ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if ran.returncode:
        sys.exit(f"`{' '.join(map(str, words))}` ended with code {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def document(folder, *words):
    return json.loads(run(["ledger", *words, "--json"], folder))


def main():
    page, folder = Path(sys.argv[1]).read_text(encoding="utf-8"), Path(sys.argv[2])
    folder.mkdir()
    os.environ["LEDGER_DIR"] = str(folder / "ledger")
    pending, attempts = [], 0
    for kind, text in re.findall(r"^```(python|toml)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        first, _, _ = text.partition("\n")
        name = first.removeprefix("# ").removeprefix("file: ")
        if first.startswith("# file: "):
            (folder / name).write_text(text, encoding="utf-8")
            pending.append(name)
            if (folder / "my.toml").exists():
                run(["ledger", "run", "my.toml"], folder)
                attempts += 2
                check(folder, attempts, text)
            continue
        compile(text, f"{sys.argv[1]}:{name}", "exec")
        if subprocess.run([sys.executable, "-c", f"import {NEEDS[name]}"], capture_output=True, check=False).returncode:
            print(f"{name}: compiled only, since {NEEDS[name]} is missing")
            continue
        (folder / f"{name}_.py").write_text(text, encoding="utf-8")
        run([sys.executable, f"{name}_.py"], folder)
        print(f"{name}: ran")
        if name == "attach":
            attempts += 1
            shown = document(folder, "show", "latest")["attempts"][0]
            assert shown["outcome"] == "finished" and shown["facts"]["attached"] is True, shown
    print(f"{len(pending)} files, {attempts} attempts")


def check(folder, attempts, script):
    """What the page says of each version of the script."""
    listed = document(folder, "ls", "--all")["attempts"]
    assert len(listed) == attempts and all(attempt["outcome"] == "finished" for attempt in listed), listed
    shown = document(folder, "show", "latest")["attempts"][0]
    names = {series["name"] for series in shown["series"]}
    assert "loss" in shown["metrics"], shown["metrics"]
    assert ("loss" in names) == ("ledger.log" in script or "timed.log" in script), names
    assert ("step_duration" in names) == ("ledger.step" in script), names


main()
