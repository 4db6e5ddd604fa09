"""A record of a process that already runs: `ledger run --attach` supervises it.

The supervisor gets a manifest on its standard input and answers with one line of JSON: the run's id and the pipe for events. A line
`finished` or `interrupted` on the same standard input ends the attempt. If the process ends without one, the attempt is interrupted.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import select
import shutil
import subprocess
import sys

from .binary import LedgerNotFound, find_ledger_bin
from .client import say

# To start a supervisor takes a look at the machine and at the script's imports.
ANSWER_S = 120.0

# The attempt that this process began last.
_current = None


class Attached:
    """An attempt that `attach` began. `run` is its id, or None if nothing is recorded."""

    def __init__(self, client=None, process=None, run=None):
        self._client, self._process, self.run = client, process, run
        self._owner = os.getpid()

    def finish(self):
        """Ends the attempt as finished."""
        self._end(b"finished\n")

    def _end(self, last):
        process, self._process = self._process, None
        # A forked child has the parent's supervisor, and does not end it.
        if process is None or os.getpid() != self._owner:
            return
        self._client.close()
        self._client.reset(None)
        os.environ.pop("LEDGER_EVENTS", None)
        try:
            process.stdin.write(last)
            process.stdin.close()
            process.wait(ANSWER_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            say(f"the attempt was not sealed yet: {error} (the next `ledger` command seals it)")

    def _raised(self, error):
        """Ends the attempt after an exception: Ctrl-C interrupts it, any other makes it a failure."""
        if isinstance(error, KeyboardInterrupt):
            self._end(b"interrupted\n")
            return
        if error is not None and self._process is not None:
            self._client.event("failure", message=f"{type(error).__name__}: {error}")
        self.finish()

    def _at_exit(self):
        # An exception that ends the process is no success.
        self._raised(None if hasattr(sys, "ps1") else getattr(sys, "last_value", None))

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        self._raised(error)


def attach(client, name, params, seed, device, directory):
    """See `ledger_events.attach`."""
    global _current
    if _current is not None and _current._process is not None and _current._owner == os.getpid():
        # As a cell of a notebook that is executed again.
        _current.finish()
    if client.path is not None:
        return Attached()
    if client.rank:
        # The supervisor of rank 0 records the run.
        return Attached()
    text = manifest(name, params, seed, device, command())
    try:
        program = find_ledger_bin()
    except LedgerNotFound as error:
        say(f"nothing is recorded: {error}")
        return Attached()
    arguments = [program, *(["--ledger", os.fspath(directory)] if directory is not None else [])]
    arguments += ["run", "--attach", str(os.getpid())]
    try:
        process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd=os.getcwd()
        )
    except OSError as error:
        say(f"nothing is recorded: `{program}` cannot be started: {error}")
        return Attached()
    answer = _ask(process, text)
    if answer is None:
        process.stdin.close()
        say("nothing is recorded: the supervisor did not start")
        return Attached()
    # Processes that this one starts report to the same record.
    os.environ["LEDGER_EVENTS"] = answer["events"]
    client.reset(answer["events"])
    attached = Attached(client, process, answer["run"])
    atexit.register(attached._at_exit)
    _current = attached
    return attached


def _ask(process, text):
    try:
        process.stdin.write(json.dumps({"manifest": text}).encode() + b"\n")
        process.stdin.flush()
        readable, _, _ = select.select([process.stdout], [], [], ANSWER_S)
        line = process.stdout.readline() if readable else b""
        return json.loads(line) if line else None
    except (OSError, ValueError):
        return None


def command():
    """The command that started this process: its script, or the interpreter alone in a notebook."""
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    if script is None or hasattr(sys, "ps1") or not os.path.isfile(script):
        # A notebook has no file that is known to hold what runs.
        return [interpreter()]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in ("__main__", None):
        module = spec.name[: -len(".__main__")] if spec.name.endswith(".__main__") else spec.name
        return [interpreter(), "-m", module, *sys.argv[1:]]
    return [interpreter(), _relative(script), *sys.argv[1:]]


def interpreter():
    """This interpreter by its plain name, if that is what it means here: a path would make the run another one on each machine."""
    name = os.path.basename(sys.executable)
    return name if shutil.which(name) == sys.executable else sys.executable


def _relative(path):
    """A file below the current folder by its name there."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir + os.sep) else relative


def manifest(name, params, seed, device, command):
    """The manifest of this process, as TOML."""
    lines = [f"name = {_text(name)}", f"seed = {int(seed)}", "[model]", f"name = {_text(name)}", "[program]"]
    lines.append("command = [" + ", ".join(_text(_braces(word)) for word in command) + "]")
    if params:
        lines.append("[params]")
        lines += [f"{_text(key)} = {_value(key, value)}" for key, value in params.items()]
    if device is not None:
        lines += ["[hardware]", f"device = {_text(device)}"]
    return "\n".join(lines) + "\n"


def _braces(word):
    return word.replace("{", "{{").replace("}", "}}")


def _text(text):
    return json.dumps(str(text)).replace("\x7f", "\\u007f")


def _value(key, value):
    # A list would be a grid of runs, and this process is one of them.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, float):
        # A manifest has finite numbers only.
        return repr(value) if math.isfinite(value) else _text(repr(value))
    if isinstance(value, str):
        return _text(value)
    try:
        return _text(json.dumps(value, sort_keys=True))
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"the parameter `{key}` is a {kind} (expected a number, a text or a JSON value)") from None
