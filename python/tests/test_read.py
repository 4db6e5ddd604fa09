"""Records as tables."""

import importlib.util
import os
import subprocess
import unittest

from support import Case, environment, python

from ledger_events.table import read

BINARY = os.environ.get("LEDGER_TEST_BIN")


class Read(Case):
    def test_wrong_words_are_named_with_those_that_there_are(self):
        with self.assertRaisesRegex(ValueError, "frame is 'polars' \\(expected \"arrow\" or \"pandas\"\\)"):
            read(frame="polars")
        with self.assertRaisesRegex(ValueError, "there is no table 'series' \\(expected some of runs, values, points, phases\\)"):
            read(tables=["series"])

    def test_without_pyarrow_the_error_says_how_to_get_it(self):
        script = """
import sys
sys.modules["pyarrow"] = None
import ledger_events as ledger
try:
    ledger.read("x")
except RuntimeError as error:
    print(error)
"""
        self.assertEqual(python(script, self.folder).stdout, "reading records needs pyarrow (pip install pyarrow)\n")

    @unittest.skipUnless(BINARY and importlib.util.find_spec("pyarrow"), "needs LEDGER_TEST_BIN and pyarrow")
    def test_tables_have_the_runs_and_every_point(self):
        (self.folder / "m.toml").write_text(
            "[model]\nname = 'toy'\n[program]\ncommand = ['sh', '-c', '''"
            'for i in 1 2 3; do echo "{{\\"event\\":\\"step\\",\\"step\\":$i,\\"values\\":{{\\"loss\\":0.$i}}}}"; done >> "$LEDGER_EVENTS"'
            "''']\n[hardware]\ndevice = 'cpu'\n"
        )
        variables = {"LEDGER_DIR": self.folder / "ledger", "LEDGER_RESTORE": self.folder / "restore", "HOME": self.folder}
        ran = subprocess.run(
            [BINARY, "run", "m.toml"], cwd=self.folder, env=environment(**variables), capture_output=True, text=True, check=False
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        kept = os.environ.get("LEDGER_BIN")
        os.environ["LEDGER_BIN"] = BINARY
        self.addCleanup(lambda: os.environ.pop("LEDGER_BIN") if kept is None else os.environ.update(LEDGER_BIN=kept))
        tables = read(self.folder / "ledger")
        self.assertEqual(tables["runs"].column("model").to_pylist(), ["toy"])
        points = [row for row in tables["points"].to_pylist() if row["series"] == "loss"]
        self.assertEqual([(row["step"], row["value"]) for row in points], [(1, 0.1), (2, 0.2), (3, 0.3)])


if __name__ == "__main__":
    unittest.main()
