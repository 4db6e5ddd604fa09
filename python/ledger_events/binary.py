"""Finds the `ledger` program that belongs to this package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig


class LedgerNotFound(FileNotFoundError):
    """There is no `ledger` program here."""


def find_ledger_bin():
    """The path of the `ledger` program.

    The first of: the variable `LEDGER_BIN`; the scripts of this environment, where the wheel installs it; the scripts of the user;
    `PATH`. A program of that name on `PATH` that is another one (Debian's `ledger` is for accounting) is refused.
    """
    stated = os.environ.get("LEDGER_BIN")
    if stated:
        if not os.access(stated, os.X_OK):
            raise LedgerNotFound(f"LEDGER_BIN is `{stated}`, which is not an executable (name the `ledger` program)")
        return stated
    for folder in _script_folders():
        path = os.path.join(folder, "ledger")
        if os.access(path, os.X_OK) and is_ours(path):
            return path
    on_path = shutil.which("ledger")
    if on_path is None:
        raise LedgerNotFound("no `ledger` program found (pip install ledger_events, or set LEDGER_BIN to its path)")
    if not is_ours(on_path):
        raise LedgerNotFound(
            f"`{on_path}` is another program named ledger (pip install ledger_events, or set LEDGER_BIN to the path of ours)"
        )
    return on_path


def _script_folders():
    folders = [sysconfig.get_path("scripts")]
    user = os.name + "_user"
    if user in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", user))
    # `pip install --target FOLDER` puts programs beside the package.
    folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin"))
    return folders


def is_ours(path):
    """Whether a program is ours: it knows the format of events."""
    try:
        asked = subprocess.run(
            [path, "schema", "--events"], capture_output=True, timeout=10, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0 and b"phase_start" in asked.stdout
