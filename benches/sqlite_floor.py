"""The floor: the same light runs in SQLite by hand, and the best of one model. Python's standard library only."""

import sqlite3
import statistics
import sys
import tempfile
import time

from light_runs import MODELS, Draw

runs = int(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    base = sqlite3.connect(folder + "/floor.db")
    base.execute("create table runs (id integer primary key, model text, params text)")
    base.execute("create table metrics (run integer, name text, value real)")
    for run in range(runs):
        draw = Draw(run, 0)
        model = MODELS[draw.u64() % 8]
        params = ",".join(str(draw.u64()) for _ in range(19))
        base.execute("insert into runs values (?, ?, ?)", (run, model, params))
        values = [(run, f"m{i}", draw.unit()) for i in range(9)] + [(run, "energy", 1e4 + 9.9e5 * draw.unit())]
        base.executemany("insert into metrics values (?, ?, ?)", values)
    base.execute("create index by_name on metrics (name, value)")
    base.commit()
    question = (
        "select run, value from metrics join runs on runs.id = metrics.run "
        "where name = 'energy' and model = 'bert' order by value limit 1"
    )
    times = []
    for _ in range(50):
        started = time.perf_counter()
        base.execute(question).fetchall()
        times.append(time.perf_counter() - started)
    print(f"{'sqlite3: best of a model, database open, indexed':<58} {statistics.median(times) * 1e3:>10.3f} ms")
    blob = bytes(8 * 6000)
    base.execute("create table series (run integer, name text, data blob)")
    times = []
    for run in range(9):
        started = time.perf_counter()
        base.executemany("insert into series values (?, ?, ?)", [(run, f"s{i}", blob) for i in range(8)])
        base.commit()
        times.append(time.perf_counter() - started)
    print(f"{'sqlite3: insert 8 raw blobs of 48 kB, durable':<58} {statistics.median(times) * 1e3:>10.3f} ms")
