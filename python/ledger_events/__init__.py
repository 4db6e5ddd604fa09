"""Reports what a training script does to `ledger`, which records it with times and energy.

    import ledger_events as ledger

    with ledger.phase("epoch", 1):
        for step, batch in enumerate(loader, 1):
            ledger.log(step=step, loss=train(batch))
    ledger.metric("accuracy", 0.97)

Under `ledger run`, the events go to the run's record. Elsewhere every call does nothing, unless `attach` starts a record.
No call but `flush` waits for `ledger`, and none waits for a GPU. `ledger schema --events` prints the format of the events.
"""

from __future__ import annotations

import os

from .binary import find_ledger_bin
from .client import Client, GpuPhase, Phase, Step, rank_of
from .table import read

__all__ = [
    "attach", "digest", "fact", "failure", "find_ledger_bin", "flush", "is_recorded", "log", "metric", "phase", "plan",
    "read", "status", "step",
]  # fmt: skip
__version__ = "0.1.0"

_client = Client(os.environ.get("LEDGER_EVENTS") or None, rank_of(os.environ))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_client.after_fork)


def is_recorded():
    """Whether events go to a record."""
    return _client.path is not None


def log(step, **values):
    """Values at a step: `log(step=10, loss=0.5)`. Each name is a curve.

    A value is a number, or a tensor of one element. A tensor on a GPU is copied without waiting for the GPU.
    """
    _client.log(step, values)


def step(number, gpu=False):
    """A training step as a context manager, with its duration: `with step(10) as s: s.log(loss=train(batch))`.

    With `gpu=True`, events on the GPU's timeline measure it, and nothing waits for the GPU. A step that ends with an exception is
    not reported.
    """
    return Step(_client, number, gpu)


def phase(name, index=None, gpu=False):
    """A phase as a context manager: `with phase("epoch", 1):`. With `gpu=True` it is measured on the GPU's timeline."""
    return (GpuPhase if gpu else Phase)(_client, name, index)


def plan(steps, epochs=None, samples_per_step=None):
    """How much work lies ahead: progress, throughput and energy per sample follow."""
    members = {"steps": steps, "epochs": epochs, "samples_per_step": samples_per_step}
    _client.event("plan", **{name: value for name, value in members.items() if value is not None})


def metric(name, value, unit=None, kind=None):
    """A result of the attempt. The last value of a name counts."""
    members = {"unit": unit, "kind": kind}
    given = {member: value for member, value in members.items() if value is not None}
    _client.event("metric", name=name, value=float(value), **given)


def fact(name, value):
    """A version or a choice, recorded as `worker.NAME`: any JSON value without null."""
    _client.event("fact", name=name, value=value)


def digest(name, hexadecimal):
    """A SHA-256 that a rerun must reproduce, such as that of the final weights."""
    _client.event("digest", name=name, digest=hexadecimal)


def status(message):
    """A line that `ledger watch` shows."""
    _client.event("status", message=message)


def failure(message):
    """The attempt has failed, whatever the exit code."""
    _client.event("failure", message=message)


def flush():
    """Waits until `ledger` has read all events so far."""
    _client.flush()


def attach(name, params=None, *, seed=1, device=None, directory=None):
    """Starts a record of this process: for a notebook, or a script that `ledger run` did not start.

    `params` are the values that distinguish runs. Under `ledger run`, or without the `ledger` program, it records nothing of its
    own. Returns an `Attached`, whose `finish` ends the record; the end of the process, or another `attach`, does so, too.
    """
    from .attached import attach as start

    return start(_client, name, params or {}, seed=seed, device=device, directory=directory)
