"""Shared by the tests: a pipe of events, and Python processes that know the package."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(PACKAGE))


def environment(**more):
    """The variables of a process that finds the package, without those of a supervisor."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_") and name not in ("RANK", "WORLD_SIZE")}
    kept.update(PYTHONPATH=str(PACKAGE), PYTHONDONTWRITEBYTECODE="1")
    kept.update({name: str(value) for name, value in more.items()})
    return kept


def python(code, folder, **variables):
    """Runs a program and returns what it did."""
    words = [sys.executable, "-c", code]
    return subprocess.run(words, cwd=folder, env=environment(**variables), capture_output=True, text=True, timeout=60, check=False)


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self):
        return str(self.folder / "events")

    def pipe(self):
        path = self.folder / "pipe"
        os.mkfifo(path)
        return str(path)


class Reader:
    """Reads a pipe from its start on a thread, as a supervisor does."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR)
        self.data = b""
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        while not self.data.endswith(b"#end\n"):
            self.data += os.read(self.file, 1 << 16)

    def lines(self):
        os.write(self.file, b"#end\n")
        self.thread.join(60)
        os.close(self.file)
        return parsed(self.data.replace(b"#end\n", b""))


def parsed(data):
    return [json.loads(line) for line in data.splitlines()]


def lines_of(path):
    return parsed(Path(path).read_bytes())
