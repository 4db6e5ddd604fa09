"""The same questions asked of MLflow: the best of one model among N runs, and what logging a run costs.

    python -m venv VENV && VENV/bin/pip install mlflow      # outside of the repository
    VENV/bin/python benches/mlflow_beside.py [RUNS ...]     # default 1000 10000 100000

Runs are as light as those of `benches/ledger.rs`: 20 parameters and 10 metrics each, drawn by the same generator; the best that MLflow finds is compared
with the generator's. With SQLite the first run is logged by MLflow, and the others are rows like its own: logging 100,000 would take hours.
The file store is asked of at most 1,000 runs, all logged by MLflow: it keeps some 32 files a run.
Logging is that of one run with 8 series of 6,000 points and a loss of 1,000, by batches of 1,000 metrics, the most that MLflow takes, and
of 300 single metrics. Figures are medians; the question is asked once where it takes longer than 5 s.
"""

import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"
import mlflow  # noqa: E402
from light_runs import MODELS, Draw  # noqa: E402
from mlflow.entities import Metric, Param  # noqa: E402

START_MS = 1_750_000_000_000
SMALL = 1000


def light(run):
    """Parameters and metrics of a run."""
    draw = Draw(run, 0)
    params = {"model": MODELS[draw.u64() % 8]} | {f"p{i:02}": str(draw.u64()) for i in range(19)}
    metrics = {"energy": 1e4 + 9.9e5 * draw.unit()} | {f"m{i}": draw.unit() for i in range(9)}
    return params, metrics


def best(runs):
    energies = ((metrics["energy"], run) for run, (params, metrics) in ((i, light(i)) for i in range(runs)) if params["model"] == "bert")
    return min(energies)[0]


def timed(work, times):
    """The median of so many; of one if that is long."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
        if taken[0] > 5:
            break
    return statistics.median(taken), len(taken)


def tell(store, what, seconds, times=None):
    asked = "" if times is None else f"  (median of {times})"
    print(f"{store:<8} {what:<58} {seconds * 1e3:>12.3f} ms{asked}", flush=True)


def log_light(client, experiment, run):
    params, metrics = light(run)
    made = client.create_run(experiment, start_time=START_MS + 600_000 * run, run_name=f"run-{run:06}")
    client.log_batch(
        made.info.run_id,
        metrics=[Metric(name, value, START_MS, 0) for name, value in metrics.items()],
        params=[Param(name, value) for name, value in params.items()],
    )
    client.set_terminated(made.info.run_id)
    return made.info.run_id


def fill_sqlite(path, first, runs):
    """Rows like those of the first run."""
    base = sqlite3.connect(path)
    base.row_factory = sqlite3.Row
    runs_table = dict(base.execute("select * from runs where run_uuid = ?", (first,)).fetchone())
    kept = {
        table: [dict(row) for row in base.execute(f"select * from {table} where run_uuid = ?", (first,))]
        for table in ["params", "metrics", "latest_metrics", "tags"]
    }

    def insert(table, rows):
        names = list(rows[0])
        places = ", ".join("?" for _ in names)
        text = f"insert into {table} ({', '.join(names)}) values ({places})"
        base.executemany(text, [[row[name] for name in names] for row in rows])

    for run in range(1, runs):
        params, metrics = light(run)
        id = uuid.uuid4().hex
        insert("runs", [runs_table | {"run_uuid": id, "name": f"run-{run:06}", "start_time": START_MS + 600_000 * run}])
        for table, rows in kept.items():
            of = {"params": params, "metrics": metrics, "latest_metrics": metrics, "tags": {}}[table]
            insert(table, [row | {"run_uuid": id, "value": of.get(row["key"], row["value"])} for row in rows])
    base.commit()
    base.close()


def heavy():
    """The points of a run of 49,000."""
    metrics = []
    for j in range(8):
        draw = Draw(0, 2 + j)
        metrics += [Metric(f"series{j}", draw.unit(), START_MS + 100 * k, k) for k in range(6000)]
    draw = Draw(0, 1)
    return metrics + [Metric("train_loss", draw.unit(), START_MS + 600 * k, k) for k in range(1000)]


def ask(store, client, experiment, runs):
    def question():
        found = client.search_runs(
            [experiment], filter_string="params.model = 'bert'", order_by=["metrics.energy ASC"], max_results=1
        )
        assert found[0].data.metrics["energy"] == expected, (found[0].data.metrics, expected)

    expected = best(runs)
    tell(store, f"best of a model, {runs} runs, store open", *timed(question, 5))


def log(store, client, experiment):
    points = heavy()

    def whole():
        id = client.create_run(experiment).info.run_id
        for at in range(0, len(points), 1000):
            client.log_batch(id, metrics=points[at : at + 1000])
        client.set_terminated(id)

    tell(store, f"log a run of {len(points)} points, 1000 a call", *timed(whole, 3))
    id = client.create_run(experiment).info.run_id
    steps = iter(range(1 << 30))
    tell(store, "log one metric, a call", *timed(lambda: client.log_metric(id, "loss", 1.0, step=next(steps)), 300))


def opened(uri):
    client = mlflow.MlflowClient(tracking_uri=uri)
    return client, client.create_experiment("bench")


def main():
    print(f"mlflow {mlflow.__version__}, SQLite {sqlite3.sqlite_version}, Python {sys.version.split()[0]}")
    counts = [int(text) for text in sys.argv[1:]] or [1000, 10_000, 100_000]
    for runs in counts:
        with tempfile.TemporaryDirectory() as folder:
            client, experiment = opened(f"sqlite:///{folder}/mlflow.db")
            first = log_light(client, experiment, 0)
            fill_sqlite(f"{folder}/mlflow.db", first, runs)
            ask("sqlite", client, experiment, runs)
        if runs <= SMALL:
            with tempfile.TemporaryDirectory() as folder:
                client, experiment = opened(f"file://{folder}/mlruns")
                for run in range(runs):
                    log_light(client, experiment, run)
                ask("files", client, experiment, runs)
    for store, place in [("sqlite", "sqlite:///{}/mlflow.db"), ("files", "file://{}/mlruns")]:
        folder = tempfile.mkdtemp()
        try:
            log(store, *opened(place.format(folder)))
        finally:
            shutil.rmtree(folder)


main()
