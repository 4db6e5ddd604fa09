"""Marks on a GPU's timeline by PyTorch's events, read when the GPU has passed them. Nothing here waits for the GPU before the exit.

**Times.** Durations are the GPU's own. Their place on the monotonic clock is bounded without waiting: a mark cannot be passed before
it is recorded, nor after it was seen to be passed. So the place is exact to some microseconds once the GPU's queue has run empty.
Until then it may be early by the depth of the queue.
"""

from __future__ import annotations

import sys
from collections import deque
from time import monotonic_ns

from .client import number


class Mark:
    """An event of the GPU: when the host recorded it, when the GPU passed it, and what to do then."""

    __slots__ = ("event", "recorded_ns", "at_ns", "then")

    def __init__(self, event, recorded_ns):
        self.event, self.recorded_ns = event, recorded_ns
        self.at_ns, self.then = None, None


class Timeline:
    """Places marks on the monotonic clock, in the order in which the GPU passes them."""

    def __init__(self):
        self.last = None
        self.last_ns = 0

    def place(self, mark, seen_ns):
        """When the GPU passed the mark, in nanoseconds of the monotonic clock."""
        at_ns = mark.recorded_ns
        if self.last is not None:
            # From mark to mark: `elapsed_time` is a 32-bit float, and exact to a microsecond for seconds only.
            at_ns = self.last_ns + between_ns(self.last, mark)
        mark.at_ns = min(max(at_ns, mark.recorded_ns), seen_ns)
        self.last, self.last_ns = mark, mark.at_ns
        return mark.at_ns


def between_ns(one, other):
    """The GPU's time from one mark to another."""
    return round(one.event.elapsed_time(other.event) * 1e6)


class Gpu:
    """Events on the GPU that are not resolved yet."""

    def __init__(self, client):
        self.client = client
        self.torch = sys.modules.get("torch")
        if self.torch is None:
            raise RuntimeError("`gpu=True` needs PyTorch (import torch first, or leave it out)")
        self.timeline = Timeline()
        # Marks in the order of the GPU's queue.
        self.waiting = deque()

    def mark(self):
        """Records a mark on the current stream. None while a CUDA graph is captured."""
        cuda = self.torch.cuda
        if cuda.is_current_stream_capturing():
            return None
        event = cuda.Event(enable_timing=True)
        mark = Mark(event, monotonic_ns())
        event.record()
        self.waiting.append(mark)
        return mark

    def phase(self, name, index, start, stop):
        """A phase between two marks."""
        if start is not None and stop is not None:
            stop.then = lambda: self._phase(name, index, stop.at_ns - between_ns(start, stop), stop.at_ns)
            self.resolve()

    def step(self, step, start, stop, values):
        """A step between two marks."""
        if start is None or stop is None:
            return
        kept, is_late = self._keep(values)

        def report():
            self.client.step(stop.at_ns, step, between_ns(start, stop), _floats(kept))

        # Copies are queued after the stop, and are no part of the step.
        last = (self.mark() if is_late else None) or stop
        if last.at_ns is None:
            last.then = report
            self.resolve()
        else:
            report()

    def values(self, t_ns, step, duration_ns, values):
        """Values of a step, some of them on a GPU; the time is the call's."""
        kept, _ = self._keep(values)
        mark = self.mark()
        if mark is not None:
            mark.then = lambda: self.client.step(t_ns, step, duration_ns, _floats(kept))
            self.resolve()

    def _keep(self, values):
        """Values, with those of a GPU copied to pinned memory by its queue; and whether there were any."""
        kept, is_late = {}, False
        for name, value in values.items():
            if getattr(value, "is_cuda", False):
                if value.numel() != 1:
                    raise TypeError(f"`{name}` has {value.numel()} elements (expected one: reduce it, `{name}.mean()`)")
                # To pinned memory, since it is not blocking.
                value = value.detach().to("cpu", non_blocking=True)
                is_late = True
            else:
                value = number(name, value)
            kept[name] = value
        return kept, is_late

    def _phase(self, name, index, start_ns, stop_ns):
        if self.client.edge("phase_start", name, index, start_ns):
            self.client.edge("phase_stop", name, index, stop_ns, is_needed=True)

    def resolve(self):
        """Reports what the GPU has passed by now. It asks, and does not wait."""
        waiting = self.waiting
        if not waiting or self.torch.cuda.is_current_stream_capturing():
            return
        while waiting and waiting[0].event.query():
            self._pass(waiting.popleft())

    def _pass(self, mark):
        self.timeline.place(mark, monotonic_ns())
        if mark.then is not None:
            mark.then()

    def finish(self):
        """Waits for what is left, at the exit."""
        waiting = self.waiting
        while waiting:
            try:
                waiting[0].event.synchronize()
                self._pass(waiting.popleft())
            except RuntimeError:
                # The device has failed, and with it what it had not computed.
                self.client.dropped += sum(mark.then is not None for mark in waiting)
                waiting.clear()


def _floats(values):
    return {name: float(value) for name, value in values.items()}
