"""`python -m ledger_events ARGUMENTS` is `ledger ARGUMENTS`, whatever is on the path."""

import os
import shutil
import sys

from .binary import LedgerNotFound, find_ledger_bin, is_ours


def main():
    try:
        path = find_ledger_bin()
    except LedgerNotFound as error:
        sys.exit(f"ledger: {error}")
    other = shutil.which("ledger")
    if other is not None and not os.path.samefile(other, path) and not is_ours(other):
        print(
            f"ledger: note: `ledger` alone starts `{other}`, another program (put `{os.path.dirname(path)}` first on PATH)",
            file=sys.stderr,
        )
    sys.stdout.flush()
    os.execv(path, [path, *sys.argv[1:]])


main()
