"""A process that records itself: the manifest that it makes, and the records of the real program."""

import json
import os
import signal
import subprocess
import sys
import unittest

from support import Case, environment, python

from ledger_events import attached
from ledger_events.binary import LedgerNotFound, find_ledger_bin
from ledger_events.client import Client

BINARY = os.environ.get("LEDGER_TEST_BIN")

SCRIPT = """
import sys
import ledger_events as ledger
with ledger.attach("toy", {"lr": 0.1, "tags": ["a", "b"], "name": 'it is "so"'}, device="cpu") as run:
    with ledger.phase("epoch", 1):
        for step in range(1, 4):
            ledger.log(step=step, loss=1 / step)
    ledger.metric("accuracy", 0.97)
    print(run.run)
    sys.stdout.flush()
    MORE
"""


class Manifests(Case):
    def test_a_manifest_has_the_command_and_one_value_of_each_parameter(self):
        text = attached.manifest("net", {"lr": 0.1, "layers": [1, 2], "is": True, 'odd "key"': "ö\n"}, 3, "cuda", ["/p", "t{r}.py"])
        expected = """name = "net"
seed = 3
[model]
name = "net"
[program]
command = ["/p", "t{{r}}.py"]
[params]
"lr" = 0.1
"layers" = "[1, 2]"
"is" = true
"odd \\"key\\"" = "\\u00f6\\n"
[hardware]
device = "cuda"
"""
        self.assertEqual(text, expected)

    def test_a_parameter_that_has_no_json_is_named(self):
        with self.assertRaisesRegex(TypeError, "the parameter `model` is a object"):
            attached.manifest("net", {"model": object()}, 1, None, ["p"])

    def test_without_the_program_one_line_says_so(self):
        script = 'import ledger_events as ledger\nprint(ledger.attach("toy").run, ledger.is_recorded())'
        ran = python(script, self.folder, PATH="/nowhere")
        self.assertEqual(ran.stdout, "None False\n")
        self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)
        self.assertIn("ledger: nothing is recorded: no `ledger` program found", ran.stderr)

    def test_under_ledger_run_and_in_other_ranks_nothing_is_started(self):
        for client in (Client(self.file()), Client(None, rank=1)):
            self.assertIsNone(attached.attach(client, "toy", {}, 1, None, None).run)

    def test_another_program_named_ledger_is_refused(self):
        other = self.folder / "ledger"
        other.write_text("#!/bin/sh\necho Ledger 3.3.2, the command-line accounting tool\n")
        other.chmod(0o755)
        kept = dict(os.environ)
        self.addCleanup(os.environ.update, kept)
        os.environ["PATH"] = f"{self.folder}:/usr/bin:/bin"
        os.environ.pop("LEDGER_BIN", None)
        with self.assertRaisesRegex(LedgerNotFound, "is another program named ledger"):
            find_ledger_bin()


@unittest.skipUnless(BINARY, "LEDGER_TEST_BIN does not name the program")
class Records(Case):
    def start(self, more="pass", wait=True, **variables):
        path = self.folder / "train.py"
        path.write_text(SCRIPT.replace("MORE", more))
        variables = {
            "LEDGER_BIN": BINARY,
            "LEDGER_DIR": self.folder / "ledger",
            "LEDGER_RESTORE": self.folder / "restore",
            "HOME": self.folder,
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(self.folder)),
            **variables,
        }
        self.variables = environment(**variables)
        words = [sys.executable, "-B", str(path)]
        process = subprocess.Popen(
            words, cwd=self.folder, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if not wait:
            return process
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def ask(self, *words):
        ran = subprocess.run([BINARY, *words, "--json"], env=self.variables, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout)

    def attempt(self):
        (attempt,) = self.ask("show", "latest")["attempts"]
        return attempt

    def test_a_plain_script_is_recorded_with_its_id_events_and_telemetry(self):
        code, out, err = self.start("import time; time.sleep(0.3)")
        self.assertEqual(code, 0, err)
        attempt = self.attempt()
        self.assertEqual(attempt["outcome"], "finished")
        self.assertEqual(attempt["run"], out.strip())
        self.assertEqual(attempt["metrics"]["accuracy"]["value"], 0.97)
        names = {series["name"]: series["len"] for series in attempt["series"]}
        self.assertEqual(names["loss"], 3)
        self.assertGreater(len(names), 1, "telemetry")
        self.assertTrue(attempt["facts"]["attached"])
        listed = json.dumps(self.ask("ls", "--all"))
        self.assertIn("toy", listed)

    def test_a_second_attach_ends_the_first_attempt(self):
        code, _, err = self.start('other = ledger.attach("other", device="cpu"); ledger.metric("accuracy", 0.5); other.finish()')
        self.assertEqual(code, 0, err)
        attempts = [self.ask("show", row["attempt"])["attempts"][0] for row in self.ask("ls", "--all")["attempts"]]
        self.assertEqual(sorted(a["metrics"]["accuracy"]["value"] for a in attempts), [0.5, 0.97])
        self.assertEqual({a["outcome"] for a in attempts}, {"finished"})

    def test_an_exception_makes_the_attempt_a_failure(self):
        code, _, err = self.start('raise KeyError("no data")')
        self.assertEqual(code, 1, err)
        attempt = self.attempt()
        self.assertEqual((attempt["outcome"], attempt["reason"]), ("failed", "KeyError: 'no data'"))

    def test_ctrl_c_interrupts_the_attempt(self):
        self.start("raise KeyboardInterrupt")
        attempt = self.attempt()
        self.assertEqual((attempt["outcome"], attempt["reason"]), ("interrupted", "it was stopped by Ctrl-C"))
        path = self.folder / "later.py"
        path.write_text('import ledger_events as ledger\nledger.attach("later", device="cpu")\nraise KeyboardInterrupt\n')
        subprocess.run([sys.executable, "-B", str(path)], cwd=self.folder, env=self.variables, capture_output=True, timeout=120, check=False)
        self.assertEqual(self.attempt()["outcome"], "interrupted", "also without `with`")

    def test_the_run_does_not_depend_on_where_its_folder_lies(self):
        first = self.start()[1]
        there = self.folder
        self.folder = there / "elsewhere"
        self.folder.mkdir()
        second = self.start()[1]
        self.folder = there
        self.assertEqual(first, second)

    def test_a_process_that_is_killed_leaves_an_interrupted_attempt(self):
        process = self.start("ledger.flush(); print('ready', flush=True); import time; time.sleep(100)", wait=False)
        while process.stdout.readline() != "ready\n":
            pass
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        # Until the supervisor, which has the same end, has sealed it.
        process.stderr.read()
        process.stderr.close()
        process.wait(60)
        attempt = self.attempt()
        self.assertEqual((attempt["outcome"], attempt["reason"]), ("interrupted", "the process ended without `finish`"))
        self.assertEqual({series["name"]: series["len"] for series in attempt["series"]}["loss"], 3)

    def test_the_same_script_and_parameters_are_the_same_run(self):
        first, second = (self.start()[1] for _ in range(2))
        self.assertEqual(first, second)
        self.assertEqual(len(self.ask("show", first.strip())["attempts"]), 2)

    def test_a_program_without_a_file_such_as_a_notebook_is_named_by_its_parameters(self):
        self.start()
        script = SCRIPT.replace("MORE", "pass")
        words = [sys.executable, "-B", "-"]
        runs = [
            subprocess.run(words, input=text, cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=120, check=False)
            for text in (script, script + "# changed\n", script.replace("0.1", "0.2"))
        ]
        self.assertEqual([run.returncode for run in runs], [0, 0, 0], runs[0].stderr)
        self.assertEqual(runs[0].stdout, runs[1].stdout)
        self.assertNotEqual(runs[0].stdout, runs[2].stdout)


if __name__ == "__main__":
    unittest.main()
