#!/usr/bin/env python3
"""Tests of the scripts for GPUs on a machine that has none, with a program in place of `ledger` that trains nothing, and without PyTorch."""

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
import ddp
import peer_models
import peer_more
import peer_worker
import peers
import plan
import versions

HERE = Path(__file__).resolve().parent
# FAKE says of an experiment how its attempts end: their parts, or null where it is refused from its second attempt on.
LEDGER = """#!PYTHON
import json, os, sys, time
from pathlib import Path

book, words = Path(os.environ["LEDGER_DIR"]), sys.argv[1:]
book.mkdir(exist_ok=True)
kept = [json.loads(path.read_text()) for path in sorted(book.glob("*.json"), reverse=True)]
if words[0] == "run":
    name = Path(words[1]).stem
    told = json.loads(os.environ["FAKE"]).get(name, {})
    if told is None and any(attempt["experiment"] == name for attempt in kept):
        sys.exit("refused")
    if (told or {}).get("hangs"):
        time.sleep(60)
    number = time.time_ns()
    attempt = {"attempt": str(number), "experiment": name, "started_unix_ms": time.time() * 1e3, "outcome": "finished", "metrics": {"throughput": {"value": 100.0}}}
    attempt.update(digests={"weights": "same"}, facts={"cards": os.environ.get("CUDA_VISIBLE_DEVICES"), "kernel_cache.key": "1b22"}, **{**(told or {})})
    # Whole at once: others read meanwhile.
    (book / f"{number}.draft").write_text(json.dumps(attempt))
    (book / f"{number}.draft").rename(book / f"{number}.json")
    sys.exit(0 if attempt["outcome"] == "finished" else 4)
elif words[0] == "ls":
    print(json.dumps({"attempts": kept}))
elif words[0] == "show":
    print(json.dumps({"attempts": [attempt for attempt in kept if attempt["attempt"] == words[1]]}))
elif words[0] == "telemetry":
    print("loss,,,1,2.5\\nloss,,,2,1.5")
elif words[:2] == ["cache", "export"]:
    if os.environ.get("FULL") or len(words) < 5:
        sys.exit("which of them?")
    Path(words[4]).write_text(words[2])
"""


class Sandbox(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out"
        program = self.folder / "fake"
        program.write_text(LEDGER.replace("PYTHON", sys.executable))
        program.chmod(0o755)

    def parallel(self, *words, fake=(), **env):
        """What the script says, and its exit code."""
        plain = {name: value for name, value in os.environ.items() if name not in ("COUNTS", "LIMIT", "DEADLINE", "LEDGER_DIR", "DEVICE", "CUDA_VISIBLE_DEVICES")}
        env = {**plain, "KEEP": str(self.folder / "work"), "FAKE": json.dumps(dict(fake)), "PYTHONDONTWRITEBYTECODE": "1", **env}
        command = [sys.executable, HERE / "parallel.py", self.out, "ledger", self.folder / "fake", *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=env)
        return done.stdout + done.stderr, done.returncode

    def attempts(self):
        return [json.loads(path.read_text()) for path in sorted((self.folder / "work/book").glob("*.json"))]

    def rows(self, file):
        return [line.split(" | ") for line in (self.out / file).read_text().splitlines()[1:]]


class Cards(Sandbox):
    def test_those_that_are_lent_are_used(self):
        lent = plan.visible("4,5,6,7", range(8))
        self.assertEqual(plan.cards_of(lent, 2, 1), ["6", "7"])
        self.assertEqual(plan.visible("0,2,1,3", range(8)), ["0", "2", "1", "3"], "in the order that was given")
        self.assertEqual(plan.visible(None, ["0", "1"]), ["0", "1"])
        self.assertEqual([plan.visible(none, ["0"]) for none in ("", "-1", "-1,0")], [[], [], []])

    def test_each_run_has_processors(self):
        self.assertEqual([plan.processors_of(list(range(64)), 4, 1, lane)[0] for lane in range(4)], [0, 16, 32, 48])
        self.assertEqual(plan.processors_of([8, 9, 10, 11], 4, 2, 1), [10, 11], "of those that there are")
        self.assertEqual(plan.processors_of([0, 1], 4, 1, 0), [0, 1])

    def test_runs_side_by_side_stay_on_them(self):
        said, code = self.parallel("grid", "bert:8:bf16:20,gpt2:4:bf16:20", CUDA_VISIBLE_DEVICES="4,5,7,6")
        self.assertEqual(code, 0, said)
        cards = [attempt["facts"]["cards"] for attempt in self.attempts()]
        self.assertEqual(cards[:2], ["4,5,7,6"] * 2, "of most GPUs first")
        self.assertLessEqual(set(cards[2:4]), {"4,5", "7,6"})
        self.assertLessEqual(set(cards[4:]), {"4", "5", "7", "6"})
        self.assertEqual([row[:2] for row in self.rows("grid.txt")], [[cell, gpus] for cell in ("bert:8:bf16", "gpt2:4:bf16") for gpus in "124"])
        self.assertEqual([row[4] for row in self.rows("grid.txt")], ["100", "50", "25"] * 2)
        self.assertEqual(len(self.rows("grid-runs.txt")), 6)


class Versions(Sandbox):
    def test_builds_take_turns_and_are_compared(self):
        env = {**os.environ, "KEEP": str(self.folder / "work"), "FAKE": "{}", "PYTHONDONTWRITEBYTECODE": "1"}
        builds = [f"{name}={self.folder / 'fake'}" for name in ("old", "new")]
        command = [sys.executable, HERE / "versions.py", self.out, 2, "bert:8:bf16:20", *builds]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        order = [line.split("\t")[1] for line in (self.out / "attempts.tsv").read_text().splitlines()]
        self.assertEqual(order, ["old", "new", "new", "old"])
        lines = (self.out / "versions.md").read_text().splitlines()
        self.assertIn("| 100 (100 to 100) |", lines[2])
        self.assertIn("same, 2 times", lines[3])
        self.assertTrue(lines[4].startswith("| bert:8:bf16 | new / old | – | 1.000 |"), lines[4])

    def test_other_weights_are_not_hidden(self):
        one = [None] * len(versions.COLUMNS)
        text = versions.table(["a"], ["old"], {("a", "old"): [(one, "1", 2.0), (one, "2", 2.0)]})
        self.assertIn("**2 digests**", text)


class Decisions(unittest.TestCase):
    def test_what_cannot_be_compared_is_no_zero(self):
        self.assertEqual([plan.apart([], [1.0]), plan.apart(None, [1.0]), plan.apart([1.0], [])], ["–"] * 3)
        self.assertEqual([plan.apart([1.0, 1.0], [1.0, math.nan]), plan.apart([1.0, math.inf], [1.0, 1.0]), plan.apart([0.0], [1.0])], ["nan"] * 3)
        self.assertEqual(plan.apart([2.0, 1.0], [2.0, 1.5]), "2.50e-01")
        self.assertIn("OF 1 ALONE", plan.apart([2.0, 1.0], [2.0]))

    def test_most_gpus_come_first(self):
        self.assertEqual(plan.schedule([1, 2, 4], ["a", "b"]), [(4, "a"), (4, "b"), (2, "a"), (2, "b"), (1, "a"), (1, "b")])

    def test_only_what_finished_is_a_row(self):
        self.assertIsNone(plan.why_no_row({"outcome": "finished"}, 100.0))
        self.assertIn("rank 1", plan.why_no_row({"outcome": "failed", "reason": "rank 1 failed"}, 100.0))
        self.assertTrue(plan.why_no_row({"outcome": "finished"}, None) and plan.why_no_row(None, None))

    def test_an_attempt_is_no_repetition_of_itself(self):
        first = {"id": "a", "outcome": "finished", "digests": {"weights": "1"}}
        self.assertEqual([plan.once_more(first, again) for again in (None, first, {**first, "id": "b", "outcome": "failed"})], ["NOT EXECUTED"] * 3)
        self.assertEqual(plan.once_more(first, {**first, "id": "b"}), "weights the same")
        self.assertEqual(plan.once_more(first, {**first, "id": "b", "digests": {"weights": "2"}}), "weights OTHER")
        self.assertEqual(plan.once_more({**first, "digests": {}}, {**first, "id": "b", "digests": {}}), "weights UNKNOWN")

    def test_every_rank_fails_once(self):
        ranks = lambda count: {int(place.split()[0]) for places in plan.faults(count).values() for place in places if place}
        self.assertEqual((ranks(2), ranks(4)), ({0, 1}, {0, 1, 2, 3}))
        self.assertEqual(list(plan.faults(2).items())[0][1][0], "1 panic eval 1", "what no table has comes first")


class Unattended(Sandbox):
    def test_what_failed_is_said_and_the_rest_is_done(self):
        failed = {"outcome": "failed", "reason": "rank 1 failed"}
        said, code = self.parallel("grid", "bert:8:bf16:20,gpt2:4:bf16:20", "weak", "nonsense", "export", fake={"grid-bert-8-bf16-2": failed}, CUDA_VISIBLE_DEVICES="0,1")
        self.assertEqual(code, 1)
        self.assertEqual([row[:2] for row in self.rows("grid.txt")], [["bert:8:bf16", "1"], ["gpt2:4:bf16", "1"], ["gpt2:4:bf16", "2"]])
        self.assertIn("grid-bert-8-bf16-2: no row, for it is failed: rank 1 failed", said)
        self.assertIn("weak broke down", said)
        self.assertTrue((self.out / "h200.kernels.xz").exists())
        self.assertLessEqual({path.name for path in self.out.iterdir()}, {"log.txt", "grid.txt", "grid-runs.txt", "h200.kernels.xz"}, "few files")

    def test_a_refused_repetition_is_not_the_same(self):
        said, code = self.parallel("equal", "bert:8:bf16", fake={"equal-bert-8-bf16-2": None}, CUDA_VISIBLE_DEVICES="0,1", COUNTS="1,2")
        self.assertEqual((code, said.count("once more: weights the same"), said.count("once more: NOT EXECUTED")), (1, 1, 1), said)
        said, code = self.parallel("equal", "gpt2:8:bf16", CUDA_VISIBLE_DEVICES="0,1", COUNTS="2")
        self.assertIn("off those of one GPU by – at the first step, – at most", said)

    def test_stages_are_held_against_one(self):
        said, code = self.parallel("pipe", "bert:8:bf16:20", "small", "gpt2:8:bf16", CUDA_VISIBLE_DEVICES="0,1")
        self.assertEqual(code, 0, said)
        heads, *rows = ((line.split(" | ") for line in (self.out / "pipe.txt").read_text().splitlines()))
        self.assertEqual([[row[heads.index(name)] for name in ("gpus", "of GPipe's speed-up %", "loss off by")] for row in rows], [["1", "100", "0.00e+00"], ["2", "56.25", "0.00e+00"]])
        self.assertIn("gpt2:8:bf16 on 2 of 12 GiB: exit code 0", said)

    def test_what_hangs_is_ended(self):
        said, code = self.parallel("weak", "bert:8:bf16:20,gpt2:8:bf16:20", fake={"weak-bert-8-bf16-1": {"hangs": True}}, CUDA_VISIBLE_DEVICES="0", COUNTS="1", LIMIT="5")
        self.assertEqual((code, [row[0] for row in self.rows("weak.txt")]), (1, ["gpt2:8:bf16"]), said)
        self.assertIn("weak-bert-8-bf16-1: exit code 124 after 5 s", said)

    def test_more_gpus_than_there_are_give_no_empty_table(self):
        said, code = self.parallel("grid", "bert:8:bf16:20", CUDA_VISIBLE_DEVICES="0,1", COUNTS="4")
        self.assertEqual(code, 1)
        self.assertIn("4 GPUs are asked for, and there are 2", said)

    def test_a_refused_run_has_not_the_attempt_of_before(self):
        for rows in (1, 1):
            self.parallel("weak", "bert:8:bf16:20", fake={"weak-bert-8-bf16-1": None}, CUDA_VISIBLE_DEVICES="0", COUNTS="1")
            self.assertEqual(len(self.rows("weak.txt")), rows)

    def test_nothing_begins_when_time_is_up(self):
        said, code = self.parallel("grid", "bert:8:bf16:20", "weak", "bert:8:bf16:20", CUDA_VISIBLE_DEVICES="0,1", DEADLINE="4")
        self.assertEqual((code, self.attempts()), (1, []))
        self.assertEqual(said.count(": no time is left"), 8, said)

    def test_the_kernels_of_the_last_attempt_are_exported(self):
        self.parallel("weak", "bert:8:bf16:20", "export", CUDA_VISIBLE_DEVICES="0", COUNTS="1")
        packed = self.out / "h200.kernels.xz"
        unpack = lambda: subprocess.run(["xz", "-dc", str(packed)], capture_output=True, check=True).stdout
        self.assertEqual(unpack(), b"1b22")
        said, code = self.parallel("export", CUDA_VISIBLE_DEVICES="0", FULL="1")
        self.assertEqual((code, unpack()), (1, b"1b22"), said)
        self.assertIn("kernels 1b22 are not exported", said)

    def test_a_part_goes_on_from_the_kernels_of_the_part_before(self):
        for place in ("out", "folder"):
            (self.folder / place).mkdir()
        tried = lambda: subprocess.run(["bash", str(HERE / "several.sh"), str(self.folder / "folder"), str(self.out), "all"], capture_output=True, text=True, check=True, env={**os.environ, "TRY": "1"}).stdout
        self.assertNotIn(" kernels ", tried())
        (self.folder / "folder/h200.kernels.xz").touch()
        self.assertIn(f" kernels {self.folder}/folder/h200.kernels.xz ", tried())
        (self.out / "h200.kernels.xz").touch()
        lines = tried().splitlines()
        for part in ("stages", "images", "words"):
            self.assertIn(f" kernels {self.out}/h200.kernels.xz ", next(line for line in lines if f" {part}: " in line))


def worker(rank, world, port, given, at):
    """In place of PyTorch: what is asked for, with the other ranks in wait."""
    for place, what in enumerate(given):
        at.value = place
        if rank == 1 and what == "raises":
            sys.exit(3)
        if what in ("raises", "hangs"):
            time.sleep(60)


class Ranks(unittest.TestCase):
    def test_a_cell_that_fails_is_left_out_alone(self):
        os.environ["LIMIT"] = "5"
        self.addCleanup(os.environ.pop, "LIMIT")
        self.assertEqual(ddp.through(worker, 2, ["well", "well"]), [])
        undone = ddp.through(worker, 2, ["well", "raises", "well", "hangs", "well"])
        self.assertEqual(len(undone), 2)
        self.assertIn("raises on 2 GPUs: failed, rank 1 with exit code 3", undone[0])
        self.assertIn("hangs on 2 GPUs: takes longer than 5 s", undone[1])
        over = ddp.through(worker, 2, ["hangs", "well"], left=lambda: 0.0)
        self.assertEqual(over, ["PyTorch, hangs and 1 behind it on 2 GPUs: no time is left"])


class Loader(Sandbox):
    def test_nccl_is_not_found_where_it_is(self):
        library = next((line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libm.so" in line), None)
        if library is None:
            self.skipTest("this Python has no library to copy")
        place = self.folder / "lib"
        place.mkdir()
        for name in ("libnccl.so.2", "libother.so"):
            (place / name).write_bytes(Path(library).read_bytes())
        search = plan.without_nccl(f"{place}:/nonexistent", self.folder / "no")
        loads = lambda name, search: subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{name}')"], capture_output=True, check=False, env={**os.environ, "LD_LIBRARY_PATH": search}).returncode == 0
        self.assertEqual([loads(name, str(place)) for name in ("libnccl.so.2", "libother.so")], [True, True])
        self.assertEqual([loads(name, search) for name in ("libnccl.so.2", "libnccl.so", "libother.so")], [False, False, True])


class Time:
    """A clock and a GPU at 400 W, which only go on while a step or an answer is computed."""

    def __init__(self):
        self.now, self.steps = 0.0, 0
        self.on_gpu = False

    def step(self):
        self.steps += 1
        self.now += 20.0 if self.steps == 1 else 0.05
        return 7.0 - self.steps

    def ask(self, batch):
        return batch

    def answer(self, _):
        self.now += 0.01

    def wait(self):
        pass

    def peak(self):
        return 3 * 2**30


class Peers(unittest.TestCase):
    def test_cells_are_read(self):
        cell = peer_models.Cell("resnet50:128:bf16")
        self.assertEqual((cell.name, cell.batch, cell.precision, cell.mode), ("resnet50", 128, "bf16", "eager"))
        self.assertEqual(str(peer_models.Cell("bert:8:fp32:graphs")), "bert:8:fp32:graphs")
        for wrong in ("resnet50:128", "resnet50:0:bf16", "resnet50:-1:bf16", "alexnet:8:fp32", "bert:8:fp8", "bert:8:fp32:slow", "bert:8:fp32:fast:2", ""):
            with self.assertRaisesRegex(ValueError, "is no cell"):
                peer_models.Cell(wrong)

    def test_energy_has_the_interval_of_the_counters_ticks(self):
        time = Time()
        time.step()
        took, joules, off = peers.window(time.step, time.wait, 6.0, lambda: time.now * 400e3, lambda: time.now)
        self.assertAlmostEqual(took, 0.05)
        self.assertAlmostEqual(joules, 20.0)
        # 1.96 * 400 W * 0.1 s / sqrt(12) at each of two edges, in quadrature: 32 J of 2,400 J.
        self.assertAlmostEqual(off / joules, 32.007 / 2400, places=5)

    def test_a_row_leaves_the_first_step_out(self):
        time = Time()
        row = peers.row(peer_models.Cell("resnet50:100:fp32:fast"), time, lambda: time.now * 400e3, lambda: time.now)
        self.assertEqual(row, "resnet50:100:fp32:fast | 50 | 2000 | 10 | 1e+04 | 20 | 0.2667 | 3 | 20")
        self.assertEqual(len(row.split("|")), len(peers.HEAD.split("|")))


class MorePeers(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.object(peer_models, "IMAGES", peer_models.IMAGES)
        patch.start()
        self.addCleanup(patch.stop)
        peer_more.add_models()

    def test_cells_of_more_models_are_read(self):
        for text in ("yolov3:64:bf16:graphs", "maskrcnn:4:fp32:compile", "dqn:32:bf16:fast", "lstm:32:bf16:eager"):
            self.assertEqual(str(peer_more.read_cell(text)), text)
        peer_more.add_models()
        self.assertEqual(peer_models.IMAGES, ("resnet50", "vgg16", "yolov3", "maskrcnn", "dqn"), "each once")
        for wrong, why in (("maskrcnn:4:bf16:graphs", "has no mode `graphs`: .* fixed shapes"), ("alexnet:4:bf16", "is no cell .*maskrcnn")):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, why):
                peer_more.read_cell(wrong)

    def test_every_cell_of_the_manifests_is_read(self):
        try:
            import tomllib
        except ImportError:
            self.skipTest("this Python has no tomllib")
        reference = HERE.parent.parent / "manifests/reference"
        listed = lambda value: value if isinstance(value, list) else [value]
        for path in sorted(reference.glob("*-pytorch.toml")):
            manifest = tomllib.loads(path.read_text())
            _, script, cell, *_ = manifest["program"]["command"]
            self.assertIn(script, manifest["program"]["files"], path.name)
            for file in manifest["program"]["files"]:
                self.assertTrue((reference / file).is_file(), f"{path.name}: {file}")
            training = manifest["training"]
            for lists in manifest["grid"]["zip"]:
                values = {name: manifest[name.split(".")[0]][name.split(".")[1]] for name in lists}
                self.assertEqual(len({len(value) for value in values.values()}), 1, path.name)
            for mode in manifest["params"]["pytorch"]:
                for batch in listed(training["batch_size"]):
                    for precision in listed(training["precision"]):
                        text = cell.format(pytorch=mode, training=argparse.Namespace(batch_size=batch, precision=precision))
                        self.assertEqual(str(peer_more.read_cell(text)), f"{manifest['model']['name']}:{batch}:{precision}:{mode}")


@unittest.skipUnless(importlib.util.find_spec("torch") and importlib.util.find_spec("numpy"), "PyTorch is not installed")
class MoreLosses(unittest.TestCase):
    def test_the_loss_of_yolov3_is_that_of_the_reference(self):
        import torch

        parity = peer_more.parity_yolov3()
        torch.manual_seed(3)
        for side, anchors, classes, rows in ((64, parity.SIXTH, 3, 4), (416, parity.ANCHORS, 80, 1)):
            objects = peer_more.random_objects(torch, rows, side, classes)
            answers = [torch.randn(rows, 3 * (5 + classes), side // cell, side // cell, dtype=torch.float64, requires_grad=True) for cell in (32, 16, 8)]
            loss_of = peer_more.Yolov3Loss(torch, objects, anchors, side, classes, "cpu", torch.float64)
            levels = [answer.reshape(rows, 3, 5 + classes, *answer.shape[2:]) for answer in answers]
            margins = [0]
            expected = sum(parity.picture_loss([level[row] for level in levels], objects[row], anchors, side, margins) for row in range(rows)) / rows
            found = loss_of(answers, loss_of.targets, loss_of.boxes)
            self.assertGreater(margins[0], 0, "some places are ignored")
            self.assertAlmostEqual(found.item() / expected.item(), 1, places=12)
            for one, other in zip(torch.autograd.grad(found, answers), torch.autograd.grad(expected, answers)):
                self.assertLess((one - other).abs().max().item(), 1e-12)

    def test_the_target_of_dqn_moves_by_a_hundredth_of_the_way(self):
        with mock.patch.object(peer_models, "IMAGES", ("dqn",)):
            work = peer_more.Dqn(peer_models.Cell("dqn:2:fp32"), "cpu")
        target, trained = (network[-1].weight for network in (work.target, work.model))
        first = target.clone()
        work.step()
        self.assertTrue(target.equal(first), "both begin alike")
        goal = trained.detach().clone()
        self.assertFalse(goal.equal(first))
        work.step()
        self.assertLess((target - (first + 0.01 * (goal - first))).abs().max().item(), 1e-8)


class LateClock:
    """Marks that the device passes three marks later."""

    def __init__(self, work):
        self.work, self.count = work, 0

    def mark(self):
        self.count += 1
        return (self.count, self.work.now)

    def passed(self, mark):
        return mark[0] + 3 <= self.count

    def at_ns(self, mark):
        return round(mark[1] * 1e9)

    def between_ns(self, one, other):
        return round((other[1] - one[1]) * 1e9)


class Worker(Sandbox):
    def test_each_step_is_told_once_with_its_own_time(self):
        path, time = self.folder / "events", Time()
        events = peer_worker.Events(path)
        self.addCleanup(events.file.close)
        with events.phase("epoch", index=1):
            peer_worker.train(time, 120, events, LateClock(time), peer_worker.Losses(time))
        first, *steps, last = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([(event["event"], event["name"], event["index"]) for event in (first, last)], [("phase_start", "epoch", 1), ("phase_stop", "epoch", 1)])
        self.assertEqual([event["step"] for event in steps], list(range(1, 121)))
        self.assertEqual([event["duration_ns"] for event in steps], [20_000_000_000] + [50_000_000] * 119)
        self.assertEqual([event["t_ns"] for event in steps[:2]], [20_000_000_000, 20_050_000_000])
        self.assertEqual({event["step"]: event["values"]["loss"] for event in steps if "values" in event}, {1: 6.0, 50: -43.0, 100: -93.0, 120: -113.0})

    def test_answers_lie_in_their_batch(self):
        path, time = self.folder / "events", Time()
        told = peer_worker.Events(path)
        self.addCleanup(told.file.close)
        peer_worker.infer(time, [1, 128], told)
        events = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([event["index"] for event in events if event["name"] == "inference_batch"], [1, 1, 128, 128])
        self.assertEqual(sum(event["name"] == "inference" for event in events), 2 * 2 * peer_worker.ANSWERS)


# In place of ledger: keeps its arguments, and lists sixty attempts to those who ask for all.
LISTS = """#!PYTHON
import json, sys
from pathlib import Path

words = sys.argv[1:]
with open("CALLS", "a") as calls:
    calls.write(" ".join(words) + "\\n")
if words[0] == "ls" and "--columns" in words and "KERNELS" == "none":
    sys.exit("error: --columns: unknown name `kernel_cache.key`")
elif words[0] == "ls":
    rows = [{"attempt": f"a{number}", "started_unix_ms": number, "columns": {"kernel_cache.key": "old" if number < 30 else "new"}} for number in range(60 if "--all" in words else 50)]
    print(json.dumps({"attempts": [*rows, {"attempt": "b", "started_unix_ms": 99}]}))
elif words[0] == "pack":
    Path(words[-1]).write_text(" ".join(words[1:-2]))
elif words[:2] == ["cache", "export"]:
    Path(words[-1]).write_text("kernels")
"""


class Campaign(Sandbox):
    def campaign(self, *words, **more):
        program, calls = self.folder / "fake", self.folder / "calls"
        program.write_text(LISTS.replace("PYTHON", sys.executable).replace("CALLS", str(calls)).replace("KERNELS", more.pop("kernels", "some")))
        command = ["bash", HERE / "campaign.sh", program, self.out, *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env={**os.environ, "WORK": str(self.folder / "work"), **more})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.folder / "work").exists())
        return calls.read_text().splitlines(), done.stdout

    def test_every_attempt_is_packed(self):
        calls, _ = self.campaign(60, "a.toml", "b.toml@batch == 8 and mode in [x, y]", "--", "before.ledger")
        self.assertEqual(len((self.out / "campaign.ledger").read_text().split()), 61)
        self.assertTrue([call for call in calls if call.startswith("cache export new ")], "the kernels of the newest attempt that has some")
        self.assertLess(calls.index("unpack before.ledger"), calls.index("run a.toml"))
        self.assertIn("run b.toml --only batch == 8 and mode in [x, y]", calls)
        self.assertLessEqual(len(list(self.out.iterdir())), 4, "few files")

    def test_attempts_are_packed_though_none_has_kernels(self):
        calls, _ = self.campaign(60, "a.toml", kernels="none")
        self.assertEqual(len((self.out / "campaign.ledger").read_text().split()), 61)
        self.assertFalse([call for call in calls if call.startswith("cache export")])

    def test_each_run_gets_as_many_more_attempts_as_repeat_says(self):
        calls, _ = self.campaign(60, "a.toml@batch == 8", "b.toml", REPEAT="1")
        self.assertIn("run a.toml --only batch == 8 --repeat 1", calls)
        self.assertIn("run b.toml --repeat 1", calls)

    def test_each_job_takes_all_manifests_and_the_runs_that_are_its_own(self):
        calls, _ = self.campaign(60, "a.toml@seed == {job}", "b.toml", JOBS="2")
        runs = [call for call in calls if call.startswith("run")]
        self.assertEqual(sorted(runs), ["run a.toml --only seed == 1", "run a.toml --only seed == 2", "run b.toml", "run b.toml"])

    def test_nothing_begins_when_time_is_up(self):
        calls, said = self.campaign(5, "a.toml")
        self.assertIn("no time is left", said)
        self.assertFalse([call for call in calls if call.startswith("run")])
        self.assertTrue((self.out / "campaign.ledger").exists(), "what there is comes back all the same")


if __name__ == "__main__":
    unittest.main()
