"""Events of a script, and their content as they arrive."""

import math
import os
import subprocess
import sys
import time
import unittest

from support import Case, Reader, environment, lines_of, python

from ledger_events import client as module
from ledger_events.client import PIPE_BYTES, QUEUE_EVENTS, Client, Phase, Step, rank_of


class Events(Case):
    def test_every_call_becomes_a_line_with_the_time_of_the_call(self):
        script = """
import time
import ledger_events as ledger
before = time.monotonic_ns()
ledger.plan(10, samples_per_step=4)
with ledger.phase("epoch", 1):
    ledger.log(step=1, loss=0.5, accuracy=1)
    with ledger.step(2) as step:
        step.log(loss=float("nan"))
ledger.metric("accuracy", 0.97, unit="1", kind="outcome")
ledger.fact("torch", {"version": "2.11"})
ledger.digest("weights", "0" * 64)
ledger.status("ready")
print(before, time.monotonic_ns(), ledger.is_recorded())
"""
        ran = python(script, self.folder, LEDGER_EVENTS=self.file())
        self.assertEqual(ran.stderr, "")
        before, after, is_recorded = ran.stdout.split()
        self.assertEqual(is_recorded, "True")
        lines = lines_of(self.file())
        for line in lines:
            self.assertTrue(int(before) <= line.pop("t_ns") <= int(after), line)
        took = lines[3].pop("duration_ns")
        self.assertTrue(0 < took <= int(after) - int(before))
        self.assertTrue(math.isnan(lines[3]["values"].pop("loss")))
        expected = [
            {"event": "plan", "steps": 10, "samples_per_step": 4},
            {"event": "phase_start", "name": "epoch", "index": 1},
            {"event": "step", "step": 1, "values": {"loss": 0.5, "accuracy": 1}},
            {"event": "step", "step": 2, "values": {}},
            {"event": "phase_stop", "name": "epoch", "index": 1},
            {"event": "metric", "name": "accuracy", "value": 0.97, "unit": "1", "kind": "outcome"},
            {"event": "fact", "name": "torch", "value": {"version": "2.11"}},
            {"event": "digest", "name": "weights", "digest": "0" * 64},
            {"event": "status", "message": "ready"},
        ]
        self.assertEqual(lines, expected)

    def test_outside_of_ledger_nothing_is_written_and_no_thread_begins(self):
        script = """
import threading
import ledger_events as ledger
with ledger.phase("epoch", 1), ledger.step(1) as step:
    step.log(loss=1)
    ledger.log(step=1, loss="no number: not looked at")
ledger.metric("accuracy", 1)
print(ledger.is_recorded(), threading.active_count())
"""
        ran = python(script, self.folder)
        self.assertEqual((ran.stdout, ran.stderr), ("False 1\n", ""))

    def test_a_step_that_fails_is_not_reported(self):
        client = Client(self.file())
        with self.assertRaises(KeyError), Step(client, 1, False) as step:
            step.log(loss=1)
            raise KeyError
        client.event("status", message="after")
        client.close()
        self.assertEqual([line["event"] for line in lines_of(self.file())], ["status"])

    def test_a_value_that_is_no_number_is_named(self):
        client = Client(self.file())
        with self.assertRaisesRegex(TypeError, r"`loss` is a list \(expected a number or a tensor of one element\)"):
            client.log(1, {"loss": [1]})

    def test_numbers_of_other_packages_are_numbers_and_what_has_no_json_is_refused_at_the_call(self):
        class Whole:
            def __index__(self):
                return 7

        client = Client(self.file())
        client.log(Whole(), {"loss": 0.5})
        with Phase(client, "epoch", Whole()):
            pass
        with self.assertRaisesRegex(TypeError, r"object has no JSON \(expected a JSON value without null\)"):
            client.event("fact", name="odd", value=object())
        with Phase(client, "epoch", object()):
            pass
        client.close()
        lines = lines_of(self.file())
        self.assertEqual([line.get("step", line.get("index")) for line in lines[:3]], [7, 7, 7])
        self.assertEqual((lines[-1]["name"], lines[-1]["value"]), ("dropped_events", 2))

    def test_a_full_queue_drops_steps_and_counts_them_while_results_and_stops_are_kept(self):
        path = self.pipe()
        held = os.open(path, os.O_RDWR)  # a supervisor that does not read
        client = Client(path)
        with Phase(client, "epoch", 1):
            for step in range(2 * QUEUE_EVENTS):
                client.log(step, {"loss": 0.5})
            client.event("metric", name="accuracy", value=1.0)
            with Phase(client, "eval", 1):
                pass
        self.assertGreater(client.dropped, 0)
        reader = Reader(path)
        client.close()
        lines = reader.lines()
        os.close(held)
        events = [line["event"] for line in lines]
        steps = events.count("step")
        # The start of `eval` is dropped, and its stop with it.
        self.assertEqual(steps + client.dropped, 2 * QUEUE_EVENTS + 1)
        self.assertEqual([event for event in events if event != "step"], ["phase_start", "metric", "phase_stop", "fact"])
        self.assertEqual((lines[-1]["name"], lines[-1]["value"]), ("dropped_events", client.dropped))

    def test_a_supervisor_that_is_gone_is_said_once_and_nothing_waits_for_it(self):
        script = """
import ledger_events as ledger
ledger.log(step=1, loss=1)
ledger.flush()
ledger.log(step=2, loss=1)
"""
        ran = python(script, self.folder, LEDGER_EVENTS=self.pipe())
        self.assertEqual(ran.returncode, 0)
        self.assertEqual(ran.stderr.count("ledger: events are no longer recorded"), 1, ran.stderr)

    def test_a_fork_writes_its_own_events_and_not_again_those_of_its_parent(self):
        script = """
import multiprocessing, os
import ledger_events as ledger
def work(number):
    ledger.log(step=number, of=os.getpid())
if __name__ == "__main__":
    for step in range(50):
        ledger.log(step=step, of=os.getpid())
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(100 + n,)) for n in range(3)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
"""
        ran = python(script, self.folder, LEDGER_EVENTS=self.file())
        self.assertEqual(ran.stderr, "")
        lines = lines_of(self.file())
        self.assertEqual(sorted(line["step"] for line in lines), [*range(50), 100, 101, 102])
        self.assertEqual(len({line["values"]["of"] for line in lines}), 4)

    def test_lines_of_several_ranks_do_not_run_into_each_other(self):
        path = self.pipe()
        reader = Reader(path)
        code = "import ledger_events as ledger\nfor step in range(3000): ledger.log(step=step, loss=step / 3)"
        ranks = [
            subprocess.Popen([sys.executable, "-c", code], env=environment(LEDGER_EVENTS=path, RANK=rank, WORLD_SIZE=3))
            for rank in range(3)
        ]
        self.assertEqual([rank.wait(60) for rank in ranks], [0, 0, 0])
        lines = reader.lines()
        for rank in range(3):
            steps = [line["step"] for line in lines if line.get("rank", 0) == rank]
            self.assertEqual(steps, list(range(3000)))

    def test_writes_to_a_pipe_are_atomic_or_one_line(self):
        client = Client(self.file())
        client._begin = lambda: None
        client.event("fact", name="long", value="x" * 2 * PIPE_BYTES)
        for step in range(500):
            client.log(step, {"loss": 0.5})
        sizes = []
        while client._queue:
            batch = client._batch()
            self.assertTrue(batch.endswith(b"\n"))
            sizes.append(len(batch))
        self.assertGreater(sizes[0], 2 * PIPE_BYTES)
        self.assertTrue(all(size <= PIPE_BYTES for size in sizes[1:]), sizes)

    def test_a_rank_is_that_of_a_launcher(self):
        self.assertEqual(rank_of({"RANK": "3", "WORLD_SIZE": "4"}), 3)
        self.assertEqual(rank_of({"RANK": "3"}), 0)
        self.assertEqual(rank_of({"RANK": "x", "WORLD_SIZE": "4"}), 0)

    def test_an_event_is_written_while_the_program_goes_on(self):
        path = self.pipe()
        reader = Reader(path)
        client = Client(path)
        client.log(1, {"loss": 1.0})
        deadline = time.monotonic() + 60
        while not reader.data and time.monotonic() < deadline:
            time.sleep(0.001)
        self.assertIn(b'"loss":1.0', reader.data)
        self.assertTrue(module.WRITE_EVERY_S < 1)
        client.close()
        reader.lines()


if __name__ == "__main__":
    unittest.main()
