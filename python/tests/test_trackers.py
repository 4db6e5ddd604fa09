"""Imports of stores that the real tools write here: every point is compared. Skipped where a tool is missing."""

import importlib.util
import json
import math
import os
import subprocess
import sys
import unittest

from support import Case, environment

BINARY = os.environ.get("LEDGER_TEST_BIN")


def has(package):
    return bool(BINARY) and importlib.util.find_spec(package) is not None


def same(one, other):
    return one == other or (math.isnan(one) and math.isnan(other))


class Imports(Case):
    def ask(self, *words, code=0, stream="stdout"):
        # The program asks `python3`, and this one has the packages of the trackers.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        variables = environment(LEDGER_DIR=self.folder / "ledger", HOME=self.folder, PATH=path)
        ran = subprocess.run([BINARY, *words], env=variables, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(ran.returncode, code, ran.stderr)
        return getattr(ran, stream)

    def points(self):
        """The points of each series of the only attempt, over steps."""
        found = {}
        for line in self.ask("export", "--to", "jsonl", "--table", "points").splitlines():
            row = json.loads(line)
            if row.get("step") is not None:
                found.setdefault(row["series"], []).append((row["step"], float(row["value"])))
        return found

    def assert_points(self, found, expected):
        self.assertEqual([step for step, _ in found], [step for step, _ in expected])
        for (step, one), (_, other) in zip(found, expected):
            self.assertTrue(same(one, other), (step, one, other))

    @unittest.skipUnless(has("tensorboardX"), "needs LEDGER_TEST_BIN and tensorboardX")
    def test_tensorboards_files_of_tensorboardx(self):
        import struct

        from tensorboardX import SummaryWriter

        expected = []
        with SummaryWriter(str(self.folder / "boards" / "one")) as writer:
            for step in range(100):
                value = math.nan if step == 7 else math.inf if step == 8 else 1 / (step + 1)
                writer.add_scalar("loss/train", value, step)
                expected.append((step, struct.unpack("f", struct.pack("f", value))[0]))
            writer.add_histogram("weights", [1, 2, 3], 0)
            writer.add_text("note", "a text", 0)
            writer.add_hparams({"lr": 0.1, "optimizer": "adam"}, {"final": 0.5}, name="hparams")
        document = json.loads(self.ask("import", "tensorboard", str(self.folder / "boards"), "--json"))
        (run,) = document["runs"]
        self.assertEqual((run["name"], run["state"]), ("one", "new"))
        self.assertIn("1 histogram", " ".join(run["warnings"]))
        self.assert_points(self.points()["loss/train"], expected)
        shown = self.ask("show", "latest", "--json")
        self.assertEqual(json.loads(shown)["attempts"][0]["metrics"]["final"]["value"], 0.5)
        self.assertIn('"params.optimizer": "adam"', shown)
        again = json.loads(self.ask("import", "tensorboard", str(self.folder / "boards"), "--json"))
        self.assertEqual(again["runs"][0]["state"], "known")

    def mlflow(self, uri):
        os.environ.update(MLFLOW_ALLOW_FILE_STORE="true", MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        client = MlflowClient(tracking_uri=uri)
        experiment = client.create_experiment("digits", artifact_location=str(self.folder / "artifacts"))
        id = client.create_run(experiment, run_name="one").info.run_id
        special = {7: math.nan, 8: math.inf, 9: -math.inf}
        expected = [(step, special.get(step, 1 / (step + 1))) for step in range(100)]
        client.log_batch(id, [Metric("loss", value, 1_700_000_000_000 + step, step) for step, value in expected])
        client.log_batch(id, params=[Param("lr", "0.1"), Param("optimizer", "adam")])
        client.set_tag(id, "mlflow.note.content", "a note")
        client.set_terminated(id)
        return expected

    @unittest.skipUnless(has("mlflow"), "needs LEDGER_TEST_BIN and mlflow")
    def test_mlflows_database_and_files(self):
        for uri, path in ((f"sqlite:///{self.folder}/mlflow.db", "mlflow.db"), (f"file://{self.folder}/mlruns", "mlruns")):
            expected = self.mlflow(uri)
            document = json.loads(self.ask("--ledger", str(self.folder / path) + ".ledger", "import", "mlflow", str(self.folder / path), "--json"))
            self.assertEqual([(run["name"], run["state"]) for run in document["runs"]], [("one", "new")])
            text = self.ask("--ledger", str(self.folder / path) + ".ledger", "export", "--to", "jsonl", "--table", "points")
            rows = [json.loads(line) for line in text.splitlines()]
            self.assert_points([(row["step"], float(row["value"])) for row in rows if row["series"] == "loss"], expected)
            shown = self.ask("--ledger", str(self.folder / path) + ".ledger", "show", "latest", "--json")
            self.assertIn('"params.lr": 0.1', shown)
            self.assertIn('"mlflow.note.content": "a note"', shown)

    @unittest.skipUnless(has("wandb"), "needs LEDGER_TEST_BIN and wandb")
    def test_an_offline_run_of_wandb(self):
        script = """
import math, wandb
run = wandb.init(project="digits", name="one", mode="offline", config={"lr": 0.1, "model": {"layers": 3}, "seed": 5}, notes="a note")
run.define_metric("eval/*", step_metric="epoch")
special = {7: math.nan, 8: math.inf, 9: -math.inf}
for step in range(100):
    row = {"loss": special.get(step, 1 / (step + 1)), "inner": {"a": step}}
    if step % 10 == 0:
        row.update({"epoch": step // 10, "eval/accuracy": step / 100, "weights": wandb.Histogram([1, 2, 3])})
    run.log(row)
run.finish()
"""
        variables = environment(WANDB_DIR=self.folder, HOME=self.folder, WANDB_SILENT="true")
        ran = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        document = json.loads(self.ask("import", "wandb", str(self.folder / "wandb"), "--json"))
        (run,) = document["runs"]
        self.assertEqual((run["name"], run["state"]), ("one", "new"))
        self.assertIn("10 histograms", " ".join(run["warnings"]))
        special = {7: math.nan, 8: math.inf, 9: -math.inf}
        points = self.points()
        self.assert_points(points["loss"], [(step, special.get(step, 1 / (step + 1))) for step in range(100)])
        self.assert_points(points["inner.a"], [(step, step) for step in range(100)])
        self.assert_points(points["eval/accuracy"], [(epoch, epoch / 10) for epoch in range(10)])
        shown = json.loads(self.ask("show", "latest", "--json"))["attempts"][0]
        self.assertEqual((shown["outcome"], shown["facts"]["wandb.notes"]), ("finished", "a note"))
        again = json.loads(self.ask("import", "wandb", str(self.folder / "wandb"), "--json"))
        self.assertEqual(again["runs"][0]["state"], "known")

    @unittest.skipUnless(has("trackio"), "needs LEDGER_TEST_BIN and trackio")
    def test_a_project_of_trackio(self):
        script = """
import math, trackio
trackio.init(project="digits", name="one", config={"lr": 0.1, "model": {"layers": 3}, "seed": 5}, embed=False)
special = {7: math.nan, 8: math.inf, 9: -math.inf}
for step in range(100):
    trackio.log({"loss": special.get(step, 1 / (step + 1)), "note": "text", "eval": {"accuracy": step / 100}}, step=step)
trackio.finish()
"""
        variables = environment(TRACKIO_DIR=self.folder / "store", HOME=self.folder)
        ran = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        document = json.loads(self.ask("import", "trackio", str(self.folder / "store"), "--json"))
        (run,) = document["runs"]
        self.assertEqual((run["name"], run["state"], run["points"]), ("one", "new", 200))
        self.assertIn("100 text values", " ".join(run["warnings"]))
        special = {7: math.nan, 8: math.inf, 9: -math.inf}
        points = self.points()
        self.assertNotIn("logged_at", points)
        self.assert_points(points["loss"], [(step, special.get(step, 1 / (step + 1))) for step in range(100)])
        self.assert_points(points["eval/accuracy"], [(step, step / 100) for step in range(100)])
        shown = self.ask("show", "latest", "--json")
        self.assertIn('"params.model.layers": 3', shown)
        self.assertEqual(json.loads(shown)["parts"]["seed"]["value"], "5")

    @unittest.skipUnless(has("aim"), "needs LEDGER_TEST_BIN and aim")
    def test_a_repository_of_aim(self):
        script = """
import math, sys, aim
repo = aim.Repo(sys.argv[1], init=True)
run = aim.Run(repo=repo, experiment="digits", system_tracking_interval=None, log_system_params=True)
run.name, run.description = "one", "a note"
run.add_tag("baseline")
run["hparams"] = {"lr": 0.1, "model": {"layers": 3, "widths": [8, 16], "none": []}, "optimizer": None, "clip": math.inf, "schedule": {30: 0.1, 60: 0.01}}
run["image"] = aim.Text("a text")
run["lr"] = 0.2
run["seed"] = 5
special = {7: math.nan, 8: math.inf, 9: -math.inf}
for step in range(100):
    run.track(special.get(step, 1 / (step + 1)), name="loss", step=step, epoch=step // 10, context={"subset": "train"})
    run.track(step, name="plain", step=step * 300)
    run.track(step, name="plain/twice", step=step)
    run.track(-step, name="plain", step=step, context={"subset": "twice"})
    if step % 10 == 0:
        run.track(step / 100, name="accuracy", step=step, context={"subset": "val", "rank": 1})
        run.track(aim.Text("a text"), name="note", step=step)
run.close()
other = aim.Run(repo=repo, experiment="digits", system_tracking_interval=None)
other.track(1.0, name="loss", step=0)
document = run.hash + " " + other.hash
sys.stdout.write(document)
sys.stdout.flush()
import os
os._exit(0)  # As if it was killed.
"""
        repository = self.folder / "work"
        repository.mkdir()
        ran = subprocess.run(
            [sys.executable, "-c", script, str(repository)], env=environment(HOME=self.folder), capture_output=True, text=True, timeout=120, check=False
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        first, other = ran.stdout.split()
        files = lambda: {path: path.stat().st_mtime_ns for path in repository.rglob("*") if path.is_file()}  # noqa: E731
        before = files()
        document = json.loads(self.ask("import", "aim", str(repository), "--json"))
        self.assertEqual(files(), before, "it is only read")
        found = {run["name"]: run for run in document["runs"]}
        self.assertEqual((found["one"]["state"], found["one"]["points"]), ("new", 410))
        self.assertIn("11 texts", " ".join(found["one"]["warnings"]))
        points = {}
        for line in self.ask("export", found["one"]["attempt"], "--to", "jsonl", "--table", "points").splitlines():
            row = json.loads(line)
            points.setdefault(row["series"], []).append((row["step"], float(row["value"])))
        special = {7: math.nan, 8: math.inf, 9: -math.inf}
        self.assert_points(points["loss/train"], [(step, special.get(step, 1 / (step + 1))) for step in range(100)])
        self.assert_points(points["plain"], [(step * 300, step) for step in range(100)])
        twice = sorted(points[name][99][1] for name in ("plain/twice", "plain/twice#2"))
        self.assertEqual(twice, [-99, 99], sorted(points))
        self.assert_points(points["accuracy/val/rank=1"], [(step, step / 100) for step in range(0, 100, 10)])
        text = self.ask("show", found["one"]["attempt"], "--json")
        expected = ('"params.lr": 0.2', '"params.hparams.lr": 0.1', '"params.model.layers": 3', '"params.model.widths": "[8, 16]"', '"params.model.none": "[]"')
        for part in (*expected, '"params.schedule.30": 0.1', '"params.schedule.60": 0.01', '"params.clip": "Infinity"'):
            self.assertIn(part, text)
        shown = json.loads(text)
        self.assertEqual(shown["parts"]["seed"]["value"], "5")
        self.assertEqual((shown["attempts"][0]["outcome"], shown["attempts"][0]["facts"]["aim.tags"]), ("finished", "baseline"))
        self.assertEqual(shown["attempts"][0]["facts"]["aim.description"], "a note")
        (killed,) = [run for run in document["runs"] if other in run["name"]]
        outcome = json.loads(self.ask("show", killed["attempt"], "--json"))["attempts"][0]["outcome"]
        self.assertIn("interrupted", str(outcome))
        again = json.loads(self.ask("import", "aim", str(repository / ".aim"), "--json"))
        self.assertEqual([run["state"] for run in again["runs"]], ["known", "known"])
        # A damaged run hinders no other.
        for path in (repository / ".aim" / "seqs" / "chunks" / first).iterdir():
            path.write_bytes(b"damaged")
        fresh = str(self.folder / "fresh")
        said = self.ask("--ledger", fresh, "import", "aim", str(repository), code=2, stream="stderr")
        self.assertIn("1 of its runs cannot be read: one: ", said)
        self.assertIn("(the others were imported)", said)
        listed = json.loads(self.ask("--ledger", fresh, "ls", "--json"))["attempts"]
        self.assertEqual(len(listed), 1)

    @unittest.skipUnless(has("pyarrow"), "needs LEDGER_TEST_BIN and pyarrow")
    def test_an_export_of_neptune_as_pyarrow_writes_it(self):
        import datetime
        from decimal import Decimal

        import pyarrow
        from pyarrow import parquet

        # The columns of neptune-exporter, which is in no registry.
        moment = pyarrow.timestamp("ms", tz="UTC")
        numbers = pyarrow.list_(pyarrow.float64())
        histogram = pyarrow.struct([("type", pyarrow.string()), ("edges", numbers), ("values", numbers)])
        schema = pyarrow.schema([
            *[(name, pyarrow.string()) for name in ("project_id", "run_id", "attribute_path", "attribute_type")],
            ("step", pyarrow.decimal128(18, 6)),
            ("timestamp", moment),
            ("int_value", pyarrow.int64()),
            ("float_value", pyarrow.float64()),
            ("string_value", pyarrow.string()),
            ("bool_value", pyarrow.bool_()),
            ("datetime_value", moment),
            ("string_set_value", pyarrow.list_(pyarrow.string())),
            ("file_value", pyarrow.struct([("path", pyarrow.string())])),
            ("histogram_value", histogram),
        ])  # fmt: skip
        start = datetime.datetime(2025, 11, 1, tzinfo=datetime.timezone.utc)

        def row(path, kind, **cells):
            return {"project_id": "work/digits", "run_id": "DIG-7", "attribute_path": path, "attribute_type": kind, **cells}

        special = {7: math.nan, 8: math.inf, 9: -math.inf}
        loss = [(step, special.get(step, 1 / (step + 1))) for step in range(100)]
        one = [
            row("sys/creation_time", "datetime", datetime_value=start),
            row("sys/tags", "string_set", string_set_value=["a", "b"]),
            row("parameters/lr", "float", float_value=0.1),
            row("parameters/model/layers", "int", int_value=3),
            row("parameters/seed", "int", int_value=5),
            row("test/accuracy", "float", float_value=0.9),
            row("weights", "file", file_value={"path": "weights.bin"}),
            row("shares", "histogram_series", step=Decimal(0), histogram_value={"type": "COUNTING", "edges": [0, 1], "values": [2]}),
        ]
        other = [
            row("train/loss", "float_series", step=Decimal(step), timestamp=start + datetime.timedelta(seconds=step), float_value=value)
            for step, value in loss
        ]
        folder = self.folder / "exports" / "digits"
        folder.mkdir(parents=True)
        for part, rows in enumerate((one, other)):
            table = pyarrow.Table.from_pylist(rows, schema=schema)
            parquet.write_table(table, folder / f"DIG-7_part_{part}.parquet", compression="snappy")
        document = json.loads(self.ask("import", "neptune", str(self.folder / "exports"), "--json"))
        (run,) = document["runs"]
        self.assertEqual((run["name"], run["state"], run["points"]), ("DIG-7", "new", 101))
        self.assertIn("1 file, 1 histogram", " ".join(run["warnings"]))
        points = self.points()
        self.assert_points(points["train/loss"], loss)
        self.assert_points(points["logged_at"], [(step, float(step)) for step, _ in loss])
        text = self.ask("show", "latest", "--json")
        self.assertIn('"params.model.layers": 3', text)
        shown = json.loads(text)
        self.assertEqual(shown["parts"]["seed"]["value"], "5")
        self.assertEqual(shown["attempts"][0]["metrics"]["test/accuracy"]["value"], 0.9)
        self.assertEqual(shown["attempts"][0]["facts"]["neptune.sys/tags"], "a, b")
        again = json.loads(self.ask("import", "neptune", str(folder / "DIG-7_part_0.parquet"), "--json"))
        self.assertEqual(again["runs"][0]["state"], "known", "a part stands for its run")


if __name__ == "__main__":
    unittest.main()
