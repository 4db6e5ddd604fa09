"""Phases and steps on a GPU's timeline, with events of a GPU that is not there."""

import sys
import types
import unittest
from unittest import mock

from support import Case, lines_of

from ledger_events import client as client_module
from ledger_events import gpu as gpu_module
from ledger_events.client import Client, GpuPhase, Step

MS = 1_000_000


class Device:
    """A queue of work with times in nanoseconds, and the host's clock beside it."""

    def __init__(self):
        self.host_ns = 1_000 * MS
        self.free_ns = 0
        self.waited = 0
        self.is_capturing = False

    def work(self, ms):
        self.free_ns = max(self.free_ns, self.host_ns) + ms * MS

    def torch(self):
        device = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at_ns = max(device.free_ns, device.host_ns)

            def query(self):
                return self.at_ns <= device.host_ns

            def synchronize(self):
                device.waited += 1
                device.host_ns = max(device.host_ns, self.at_ns)

            def elapsed_time(self, other):
                return (other.at_ns - self.at_ns) / 1e6

        cuda = types.SimpleNamespace(Event=Event, is_current_stream_capturing=lambda: device.is_capturing)
        return types.SimpleNamespace(cuda=cuda)


class Tensor:
    """A value that is on the GPU until its copy has been made."""

    is_cuda = True

    def __init__(self, device, value, elements=1):
        self.device, self.value, self.elements = device, value, elements

    def numel(self):
        return self.elements

    def detach(self):
        return self

    def to(self, place, non_blocking):
        assert place == "cpu" and non_blocking
        copy = Tensor(self.device, self.value)
        copy.ready_ns = max(self.device.free_ns, self.device.host_ns)
        return copy

    def __float__(self):
        assert getattr(self, "ready_ns", sys.maxsize) <= self.device.host_ns, "read before the copy was made"
        return self.value


class OnGpu(Case):
    def setUp(self):
        super().setUp()
        self.device = Device()
        clock = lambda: self.device.host_ns  # noqa: E731
        for patched in (
            mock.patch.dict(sys.modules, torch=self.device.torch()),
            mock.patch.object(client_module, "monotonic_ns", clock),
            mock.patch.object(gpu_module, "monotonic_ns", clock),
        ):
            patched.start()
            self.addCleanup(patched.stop)
        self.client = Client(self.file())

    def lines(self):
        self.client.close()
        return lines_of(self.file())

    def test_a_phase_has_the_times_of_the_gpu_and_nothing_waits_for_it(self):
        with GpuPhase(self.client, "forward", 1):
            self.device.work(30)
        with GpuPhase(self.client, "backward", 1):
            self.device.work(60)
        self.assertEqual(self.client._queue.__len__(), 0, "the GPU has not ended them")
        self.device.host_ns += 100 * MS
        self.client.log(1, {"loss": 1.0})
        self.assertEqual(self.device.waited, 0)
        lines = self.lines()
        times = [(line["event"], line.get("name"), (line["t_ns"] - 1_000 * MS) // MS) for line in lines]
        expected = [
            ("phase_start", "forward", 0),
            ("phase_stop", "forward", 30),
            ("phase_start", "backward", 30),
            ("phase_stop", "backward", 90),
            ("step", None, 100),
        ]
        self.assertEqual(times, expected)

    def test_what_is_left_at_the_exit_is_waited_for(self):
        with GpuPhase(self.client, "forward", None):
            self.device.work(30)
        self.assertEqual([line["event"] for line in self.lines()], ["phase_start", "phase_stop"])
        self.assertEqual(self.device.waited, 1)

    def test_a_step_on_the_gpu_has_its_duration_and_a_loss_that_is_read_when_it_is_there(self):
        with Step(self.client, 7, True) as step:
            self.device.work(40)
            step.log(loss=Tensor(self.device, 0.25), learning_rate=0.1)
        self.device.host_ns += 50 * MS
        (line,) = self.lines()
        self.assertEqual(line["t_ns"], 1_040 * MS)
        self.assertEqual((line["step"], line["duration_ns"]), (7, 40 * MS))
        self.assertEqual(line["values"], {"loss": 0.25, "learning_rate": 0.1})

    def test_a_logged_tensor_has_the_time_of_the_call(self):
        self.device.work(40)
        self.client.log(3, {"loss": Tensor(self.device, 0.5)})
        self.device.host_ns += 50 * MS
        (line,) = self.lines()
        self.assertEqual((line["t_ns"], line["values"]), (1_000 * MS, {"loss": 0.5}))

    def test_a_tensor_of_many_elements_is_refused(self):
        with self.assertRaisesRegex(TypeError, r"`loss` has 8 elements \(expected one: reduce it"):
            self.client.log(1, {"loss": Tensor(self.device, 0.5, elements=8)})

    def test_the_place_of_a_mark_is_between_its_record_and_the_moment_it_was_seen(self):
        timeline = gpu_module.Timeline()
        event = self.device.torch().cuda.Event

        def mark(recorded_ms, at_ms):
            made = event(enable_timing=True)
            made.at_ns = at_ms * MS
            return gpu_module.Mark(made, recorded_ms * MS)

        # The first mark is behind 20 ms of work that was queued before: its place is early by that, and its duration is not.
        self.assertEqual(timeline.place(mark(0, 20), seen_ns=100 * MS), 0)
        self.assertEqual(timeline.place(mark(1, 50), seen_ns=100 * MS), 30 * MS)
        # The queue ran empty: the mark was passed as it was recorded, which corrects the rest.
        self.assertEqual(timeline.place(mark(200, 200), seen_ns=201 * MS), 200 * MS)
        self.assertEqual(timeline.place(mark(201, 230), seen_ns=240 * MS), 230 * MS)
        # A clock that drifts cannot pass the moment at which a mark was seen.
        self.assertEqual(timeline.place(mark(231, 260), seen_ns=250 * MS), 250 * MS)

    def test_while_a_graph_is_captured_nothing_is_recorded(self):
        self.device.is_capturing = True
        with GpuPhase(self.client, "forward", 1), Step(self.client, 1, True):
            self.device.work(1)
        self.assertFalse(self.client.gpu().waiting)

    def test_without_pytorch_the_error_names_it(self):
        with mock.patch.dict(sys.modules):
            del sys.modules["torch"]
            with self.assertRaisesRegex(RuntimeError, "`gpu=True` needs PyTorch"):
                GpuPhase(self.client, "forward", 1).__enter__()


if __name__ == "__main__":
    unittest.main()
