"""Records as Arrow tables or pandas frames, through the program's Parquet export."""

from __future__ import annotations

import os
import subprocess
import tempfile

from .binary import find_ledger_bin


class ReadError(RuntimeError):
    """The records cannot be read."""


# The tables of `ledger export`.
TABLES = ("runs", "values", "points", "phases")


def read(path=None, *, where=None, frame="arrow", tables=TABLES):
    """The records of a ledger as tables by name: `runs` with their fields and metrics, `values`, `points` of series, `phases`.

    `path` is the ledger's folder; without it, the program finds the ledger as it always does. `where` is an expression such as
    `model == "bert" and gpus <= 2`. The tables are Arrow's, or with `frame="pandas"` data frames. `docs/export.md` has their columns.
    """
    if frame not in ("arrow", "pandas"):
        raise ValueError(f'frame is {frame!r} (expected "arrow" or "pandas")')
    for table in tables:
        if table not in TABLES:
            raise ValueError(f"there is no table {table!r} (expected some of {', '.join(TABLES)})")
    try:
        from pyarrow import parquet
    except ImportError:
        raise ReadError("reading records needs pyarrow (pip install pyarrow)") from None
    if frame == "pandas":
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise ReadError('frame="pandas" needs pandas (pip install pandas)') from None
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for table in tables:
            out = os.path.join(folder, f"{table}.parquet")
            command = [find_ledger_bin(), *(["--ledger", os.fspath(path)] if path is not None else [])]
            command += ["export", "--to", "parquet", "--table", table, "-o", out]
            command += ["--where", where] if where is not None else []
            ran = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            if ran.returncode:
                raise ReadError(ran.stderr.strip() or f"`{' '.join(command)}` ended with code {ran.returncode}")
            # Not as a map of memory: the file is gone after this.
            read = parquet.read_table(out, memory_map=False)
            found[table] = read.to_pandas() if frame == "pandas" else read
    return found
