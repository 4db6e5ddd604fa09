"""The queue of events and the thread that writes them to the file that `LEDGER_EVENTS` names.

A call stamps the time and appends to a queue. It never waits for the supervisor: when the queue is full, the event is dropped and
counted, and the count is recorded as the fact `dropped_events`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import sys
import threading
from collections import deque
from operator import index
from time import monotonic_ns

# Events in the queue, at most. One of two values takes about 400 bytes.
QUEUE_EVENTS = 65_536
# Longer writes to a pipe are not atomic: lines of several ranks would run into each other.
PIPE_BYTES = getattr(select, "PIPE_BUF", 4096)
# An event waits so long in the queue, at most, while the supervisor reads.
WRITE_EVERY_S = 0.02
# The exit of the process waits so long for the queue.
EXIT_WAIT_S = 10.0

_PLAIN = frozenset((int, float))


def _other(value):
    """Numbers of other packages, such as numpy's."""
    for convert in (index, float):
        try:
            return convert(value)
        except (TypeError, ValueError):
            continue
    raise TypeError(f"{type(value).__name__} has no JSON (expected a JSON value without null)")


_encode = json.JSONEncoder(separators=(",", ":"), default=_other).encode


def rank_of(environment):
    """The rank that a launcher such as torchrun states, else 0."""
    if "WORLD_SIZE" not in environment:
        return 0
    try:
        return max(int(environment.get("RANK", "0")), 0)
    except ValueError:
        return 0


def say(text):
    """One line on standard error."""
    print(f"ledger: {text}", file=sys.stderr)


def number(name, value):
    """A value as a float. A GPU tensor is refused by its type here: `gpu.Pending` reads those without waiting."""
    try:
        return float(value)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise TypeError(f"`{name}` is a {kind} (expected a number or a tensor of one element)") from None


class Client:
    """Writes events to a path. Without a path, every call does nothing."""

    def __init__(self, path, rank=0):
        self.path = path
        self.rank = rank
        self.dropped = 0
        self._queue = deque()
        self._start = threading.Lock()
        self._writing = threading.Lock()
        self._thread = None
        self._closing = threading.Event()
        self._file = None
        self._is_broken = False
        self._told_dropped = 0
        self._gpu = None

    # What is reported

    def log(self, step, values):
        """Values at a step. Values on a GPU are copied later, without waiting for the GPU."""
        if self.path is None:
            return
        t_ns = monotonic_ns()
        is_late = False
        for name, value in values.items():
            if type(value) not in _PLAIN:
                if getattr(value, "is_cuda", False):
                    is_late = True
                else:
                    values[name] = number(name, value)
        if is_late:
            self.gpu().values(t_ns, step, None, values)
            return
        if self._gpu is not None:
            self._gpu.resolve()
        self._put((t_ns, step, None, values))

    def event(self, event, **members):
        """An event that is no step: it is kept also when the queue is full, up to twice its size."""
        if self.path is not None:
            t_ns = monotonic_ns()
            # A value that has no JSON is refused at the call.
            _encode(members)
            self._put((t_ns, event, members), 2 * QUEUE_EVENTS)

    def edge(self, event, name, number, t_ns, is_needed=False):
        """The start or the stop of a phase. Returns whether it is kept."""
        members = {"name": name} if number is None else {"name": name, "index": number}
        return self._put((t_ns, event, members), sys.maxsize if is_needed else QUEUE_EVENTS)

    def step(self, t_ns, step, duration_ns, values):
        """A step with its duration; its values are numbers."""
        self._put((t_ns, step, duration_ns, values))

    def gpu(self):
        """Marks on the GPU's timeline, made when first needed."""
        if self._gpu is None:
            from .gpu import Gpu

            self._gpu = Gpu(self)
        return self._gpu

    # The queue and its thread

    def _put(self, item, limit=QUEUE_EVENTS):
        queue = self._queue
        if len(queue) >= limit or self._is_broken:
            self.dropped += 1
            return False
        queue.append(item)
        if self._thread is None:
            self._begin()
        return True

    def _begin(self):
        with self._start:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._work, name="ledger_events", daemon=True)
            self._thread.start()
        atexit.register(self.close)
        # Processes that multiprocessing forks end without `atexit`.
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.close, exitpriority=100)

    def _work(self):
        while not self._closing.wait(WRITE_EVERY_S):
            self.flush()

    def flush(self):
        """Writes what is in the queue. Returns when the supervisor has room for all of it."""
        with self._writing:
            while not self._is_broken and (self._queue or self._told_dropped != self.dropped):
                self._write(self._batch())
            if self._is_broken:
                self.dropped += len(self._queue)
                self._queue.clear()

    def _batch(self):
        """Whole lines of at most `PIPE_BYTES` together; a longer line alone."""
        lines, size = [], 0
        while self._queue:
            try:
                line = self._line(self._queue[0])
            except (TypeError, ValueError) as error:
                self._queue.popleft()
                self.dropped += 1
                say(f"an event is dropped: {error}")
                continue
            if lines and size + len(line) > PIPE_BYTES:
                break
            self._queue.popleft()
            lines.append(line)
            size += len(line)
        if not lines and self._told_dropped != self.dropped:
            self._told_dropped = self.dropped
            members = {"name": "dropped_events", "value": self._told_dropped}
            lines.append(self._line((monotonic_ns(), "fact", members)))
        return b"".join(lines)

    def _line(self, item):
        if len(item) == 4:
            t_ns, step, duration_ns, values = item
            line = {"event": "step", "t_ns": t_ns, "step": step, "values": values}
            if duration_ns is not None:
                line["duration_ns"] = duration_ns
        else:
            t_ns, event, members = item
            line = {"event": event, "t_ns": t_ns, **members}
        if self.rank:
            line["rank"] = self.rank
        return (_encode(line) + "\n").encode()

    def _write(self, data):
        try:
            if self._file is None:
                self._file = _open(self.path)
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._is_broken = True
            say(f"events are no longer recorded: {error}")

    def close(self):
        """Writes what is left, for at most `EXIT_WAIT_S`."""
        if self._gpu is not None:
            self._gpu.finish()
        self._closing.set()
        thread = self._thread
        if thread is None:
            return
        thread.join(EXIT_WAIT_S)
        if not thread.is_alive():
            last = threading.Thread(target=self.flush, name="ledger_events", daemon=True)
            last.start()
            last.join(EXIT_WAIT_S)

    def reset(self, path):
        """Begins anew with another path. What is queued is dropped."""
        if self._file is not None:
            os.close(self._file)
        self.__init__(path, self.rank)

    def after_fork(self):
        """In a child process: what the parent has queued is the parent's to write."""
        self.reset(self.path)


def _open(path):
    # Without O_NONBLOCK, opening a pipe whose supervisor is gone waits for ever.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
    file = os.open(path, flags, 0o600)
    os.set_blocking(file, True)
    return file


class Phase:
    """A phase as a context manager."""

    __slots__ = ("client", "name", "index", "mark")

    def __init__(self, client, name, index):
        self.client, self.name, self.index = client, name, index

    def __enter__(self):
        if self.client.path is not None:
            self.mark = self.client.edge("phase_start", self.name, self.index, monotonic_ns())
        return self

    def __exit__(self, *_):
        # A stop without its start would be a fault of its own.
        if self.client.path is not None and self.mark:
            self.client.edge("phase_stop", self.name, self.index, monotonic_ns(), is_needed=True)


class GpuPhase(Phase):
    """A phase on the GPU's timeline."""

    __slots__ = ()

    def __enter__(self):
        if self.client.path is not None:
            self.mark = self.client.gpu().mark()
        return self

    def __exit__(self, *_):
        if self.client.path is not None:
            gpu = self.client.gpu()
            gpu.phase(self.name, self.index, self.mark, gpu.mark())


class Step:
    """A training step as a context manager: its duration and its values become one event."""

    __slots__ = ("client", "number", "is_gpu", "mark", "values")

    def __init__(self, client, number, is_gpu):
        self.client, self.number, self.is_gpu = client, number, is_gpu
        self.values = {}

    def log(self, **values):
        """Values of this step."""
        self.values.update(values)

    def __enter__(self):
        if self.client.path is not None:
            self.mark = self.client.gpu().mark() if self.is_gpu else monotonic_ns()
        return self

    def __exit__(self, kind, *_):
        client = self.client
        if client.path is None or kind is not None:
            return
        if self.is_gpu:
            gpu = client.gpu()
            gpu.step(self.number, self.mark, gpu.mark(), self.values)
            return
        t_ns = monotonic_ns()
        duration_ns = t_ns - self.mark
        values = self.values
        if any(getattr(value, "is_cuda", False) for value in values.values()):
            client.gpu().values(t_ns, self.number, duration_ns, values)
        else:
            client.step(t_ns, self.number, duration_ns, {name: number(name, value) for name, value in values.items()})


