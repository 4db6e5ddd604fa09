"""Shared by the adapters of training loops: steps whose values come after their end, and phases that other calls begin and end."""

from __future__ import annotations

import sys
from time import monotonic_ns

from . import _client
from .client import number


def numbers(values):
    """The values that are numbers or tensors of one element, under their names."""
    kept = {}
    for name, value in values.items():
        if getattr(value, "is_cuda", False):
            if value.numel() == 1:
                kept[name] = value
            continue
        if isinstance(value, (str, bytes)):
            continue
        try:
            kept[name] = float(value)
        except (TypeError, ValueError, RuntimeError):
            continue
    return kept


def uses_gpu():
    """Whether steps can be timed on a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available()


class Steps:
    """Steps of a loop. The values of a step are reported when the next one begins, since loops log them after its end."""

    def __init__(self, client=_client):
        self.client = client
        self.start = None
        # Number, begin, end and values of a step that has ended.
        self.ended = None

    def _mark(self):
        return self.client.gpu().mark() if uses_gpu() else monotonic_ns()

    def begin(self):
        self.close()
        if self.client.path is not None and self.start is None:
            self.start = self._mark()

    def end(self, step):
        if self.start is not None:
            self.ended = (step, self.start, self._mark(), {})
            self.start = None

    def log(self, step, values):
        """Values of the step that has ended, or of a step of that number if none has."""
        if self.client.path is None:
            return
        if self.ended is None:
            self.client.log(step, dict(values))
        else:
            self.ended[3].update(values)

    def close(self):
        """Reports the step that has ended."""
        if self.ended is None:
            return
        (step, start, stop, values), self.ended = self.ended, None
        if not isinstance(stop, int):
            self.client.gpu().step(step, start, stop, values)
        else:
            values = {name: number(name, value) for name, value in values.items()}
            self.client.step(stop, step, stop - start, values)


class Phases:
    """Phases by their names, each at most once at a time."""

    def __init__(self, client=_client):
        self.client = client
        self.open = {}

    def start(self, name, index=None):
        if self.client.path is not None and name not in self.open:
            if self.client.edge("phase_start", name, index, monotonic_ns()):
                self.open[name] = index

    def stop(self, name):
        if name in self.open:
            self.client.edge("phase_stop", name, self.open.pop(name), monotonic_ns(), is_needed=True)

    def stop_all(self):
        for name in reversed(list(self.open)):
            self.stop(name)
