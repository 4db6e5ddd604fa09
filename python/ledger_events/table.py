"""Records as Arrow tables or pandas frames, through the program's Parquet export."""

from __future__ import annotations

import os
import subprocess
import tempfile

from .binary import find_ledger_bin


class ReadError(RuntimeError):
    """The records cannot be read."""


def read(path=None, *, where=None, frame="arrow"):
    """The runs of a ledger, with their fields and metrics, and the points of their series.

    `path` is the ledger's folder; without it, the program finds the ledger as it always does. `where` is an expression such as
    `model == "bert" and gpus <= 2`. Returns a dictionary of tables by name; with `frame="pandas"`, of data frames.
    """
    if frame not in ("arrow", "pandas"):
        raise ValueError(f'frame is {frame!r} (expected "arrow" or "pandas")')
    try:
        from pyarrow import parquet
    except ImportError:
        raise ReadError("reading records needs pyarrow (pip install pyarrow)") from None
    if frame == "pandas":
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise ReadError('frame="pandas" needs pandas (pip install pandas)') from None
    with tempfile.TemporaryDirectory() as folder:
        # It must be new.
        out = os.path.join(folder, "tables")
        command = [find_ledger_bin(), *(["--ledger", os.fspath(path)] if path is not None else [])]
        command += ["export", "--to", "parquet", "-o", out, *(["--where", where] if where is not None else [])]
        ran = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if ran.returncode:
            raise ReadError(ran.stderr.strip() or f"`{' '.join(command)}` ended with code {ran.returncode}")
        tables = {}
        for name in sorted(os.listdir(out)):
            stem, extension = os.path.splitext(name)
            if extension == ".parquet":
                # Not lazily: the files are gone after this.
                tables[stem] = parquet.read_table(os.path.join(out, name), memory_map=False)
    return {name: table.to_pandas() for name, table in tables.items()} if frame == "pandas" else tables
