"""Reads every export of a ledger with the reader of the tool that it is for, and compares it with `ledger show --json`.

    check.py LEDGER-BINARY FOLDER      the ledger is that of $LEDGER_DIR; FOLDER must not exist
"""

import csv
import glob
import io
import json
import math
import os
import subprocess
import sys
import time
import urllib.request

LEDGER, OUT = sys.argv[1], sys.argv[2]
os.makedirs(OUT)
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"


def ledger(*arguments):
    return subprocess.run([LEDGER, *arguments], check=True, capture_output=True, text=True).stdout


def number(value):
    """Non-finite numbers are texts in JSON."""
    return float(value)


def same(a, b, digits=0.0):
    a, b = number(a), number(b)
    close = a == b or math.isnan(a) and math.isnan(b) or digits > 0 and abs(a - b) <= digits * abs(b)
    assert close, (a, b)


LISTED = json.loads(ledger("ls", "--all", "--json"))["attempts"]
SHOWN = {}
for line in LISTED:
    shown = json.loads(ledger("show", line["attempt"], "--json"))
    attempt = next(item for item in shown["attempts"] if item["attempt"] == line["attempt"])
    SHOWN[line["attempt"]] = (shown, attempt)


def metrics(attempt):
    """Name, value and unit of each metric that has a value."""
    return {name: (m["value"], m["unit"]) for name, m in attempt["metrics"].items() if "value" in m}


def head(name, unit):
    return f"{name} [{unit}]" if unit else name


def points():
    """By attempt and series, steps or times and values, from the ledger's own table."""
    found = {}
    for row in csv.DictReader(io.StringIO(ledger("export", "--to", "csv", "--table", "points"))):
        found.setdefault((row["attempt"], row["series"]), []).append((row["step"], row["time_ns"], float(row["value"])))
    return found


def check_csv():
    rows = list(csv.DictReader(io.StringIO(ledger("export", "--to", "csv"))))
    assert {row["attempt"] for row in rows} == set(SHOWN) and len(rows) == len(SHOWN)
    for row in rows:
        shown, attempt = SHOWN[row["attempt"]]
        assert row["outcome"] == attempt["outcome"]
        for name, (value, unit) in metrics(attempt).items():
            same(row[head(name, unit)], value)
        for name, metric in attempt["metrics"].items():
            assert "value" in metric or row.get(head(name, metric["unit"]), "") == "", name
    long = list(csv.DictReader(io.StringIO(ledger("export", "--to", "csv", "--table", "values"))))
    found = {(row["attempt"], row["name"]): row for row in long if row["kind"] == "metric"}
    assert len(found) == sum(len(attempt["metrics"]) for _, attempt in SHOWN.values())
    for id, (_, attempt) in SHOWN.items():
        for name, metric in attempt["metrics"].items():
            assert found[id, name]["reason"] == metric.get("reason", "")
            if "value" in metric:
                same(found[id, name]["value"], metric["value"])
    return f"{len(rows)} rows, {len(long)} values"


def check_jsonl():
    rows = [json.loads(line) for line in ledger("export", "--to", "jsonl").splitlines()]
    assert {row["attempt"] for row in rows} == set(SHOWN)
    for row in rows:
        for name, (value, unit) in metrics(SHOWN[row["attempt"]][1]).items():
            same(row[head(name, unit)], value)
    return f"{len(rows)} objects"


def check_parquet():
    import pyarrow
    import pyarrow.parquet

    tables = {}
    for name in ["runs", "values", "points", "phases"]:
        ledger("export", "--to", "parquet", "--table", name, "-o", f"{OUT}/{name}.parquet")
        tables[name] = pyarrow.parquet.read_table(f"{OUT}/{name}.parquet")
        expected = list(csv.DictReader(io.StringIO(ledger("export", "--to", "csv", "--table", name))))
        assert tables[name].num_rows == len(expected), name
        for row, line in zip(tables[name].to_pylist(), expected):
            assert list(row) == list(line)
            for column, value in row.items():
                text = line[column]
                if value is None:
                    assert text == "", column
                elif isinstance(value, float):
                    same(value, text)
                elif isinstance(value, bool):
                    assert str(value).lower() == text
                elif isinstance(value, (int, str)):
                    assert str(value) == text, (column, value, text)
                else:
                    assert value.isoformat(timespec="milliseconds").replace("+00:00", "Z") == text
    schema = tables["runs"].schema
    assert schema.field("started").type == pyarrow.timestamp("ms", tz="UTC")
    return ", ".join(f"{table.num_rows} {name}" for name, table in tables.items())


def check_mlflow():
    import mlflow

    store = f"{OUT}/mlruns"
    ledger("export", "--to", "mlflow", "-o", store)
    mlflow.set_tracking_uri(f"file://{os.path.abspath(store)}")
    client = mlflow.MlflowClient()
    series, runs = points(), 0
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            runs += 1
            id = run.data.tags["ledger.attempt"]
            shown, attempt = SHOWN[id]
            statuses = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
            assert run.info.status == statuses[attempt["outcome"]]
            for name, (value, _) in metrics(attempt).items():
                same(run.data.metrics[name.replace("@", "_at_")], value)
            for (owner, name), expected in series.items():
                if owner == id and expected[0][0]:
                    history = client.get_metric_history(run.info.run_id, f"series/{name}")
                    assert [(str(m.step), m.value) for m in history] == [(step, value) for step, _, value in expected]
                elif owner == id:
                    assert len(client.get_metric_history(run.info.run_id, f"system/{name}")) == len(expected)
            assert set(run.data.params) and run.info.end_time >= run.info.start_time
    assert runs == len(SHOWN)
    # The web server answers from it.
    with open(f"{OUT}/mlflow.log", "w") as log:
        program = f"{os.path.dirname(sys.executable)}/mlflow"
        server = subprocess.Popen(
            [program, "ui", "--backend-store-uri", store, "--port", "5987", "--workers", "1"],
            stdout=log, stderr=log, start_new_session=True,
        )
        try:
            for _ in range(120):
                time.sleep(1)
                try:
                    request = urllib.request.Request(
                        "http://127.0.0.1:5987/api/2.0/mlflow/experiments/search",
                        data=b'{"max_results": 100}', headers={"Content-Type": "application/json"},
                    )
                    answer = json.load(urllib.request.urlopen(request, timeout=10))
                    break
                except OSError:
                    assert server.poll() is None, open(log.name).read()
            names = {experiment["name"] for experiment in answer["experiments"]}
        finally:
            os.killpg(server.pid, 15)
            server.wait()
    assert names == {experiment.name for experiment in client.search_experiments()}
    return f"{runs} runs in {len(names)} experiments, served by `mlflow ui`"


def check_tensorboard():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    ledger("export", "--to", "tensorboard", "-o", f"{OUT}/boards")
    files = glob.glob(f"{OUT}/boards/*/*/events.out.tfevents.*")
    assert len(files) == len(SHOWN)
    series, scalars = points(), 0
    for file in files:
        (id,) = [id for id in SHOWN if id.startswith(file.rsplit(".", 1)[1])]
        events = EventAccumulator(file, size_guidance={"scalars": 0})
        events.Reload()
        (text,) = events.Tensors("fields")
        model = SHOWN[id][0]["parts"]["config"]["value"]["model.name"]
        assert f"model.name = {model}\n" in text.tensor_proto.string_val[0].decode()
        for name, (value, _) in metrics(SHOWN[id][1]).items():
            (event,) = events.Scalars(f"metric/{name}")
            single = number(value)
            same(event.value, math.inf if single > 3.5e38 else single, 1e-7)
            scalars += 1
        for (owner, name), expected in series.items():
            if owner == id:
                found = events.Scalars(name)
                assert len(found) == len(expected)
                for event, (step, _, value) in zip(found, expected):
                    assert step == "" or event.step == int(step)
                    same(event.value, value, 1e-7)
                    scalars += 1
    return f"{len(files)} files, {scalars} scalars"


def check_mllog():
    from mlperf_logging.compliance_checker import mlp_parser

    ledger("export", "--to", "mllog", "-o", f"{OUT}/mllog")
    files = glob.glob(f"{OUT}/mllog/*.txt")
    assert len(files) == len(SHOWN)
    count = 0
    for file in files:
        (id,) = [id for id in SHOWN if id.startswith(file[:-4].rsplit("-", 1)[1])]
        lines, errors = mlp_parser.parse_file(file, "4.1.0")
        assert not errors, errors
        assert len(lines) == sum(1 for _ in open(file))
        found = {line.key: line.value["value"] for line in lines}
        for name, (value, _) in metrics(SHOWN[id][1]).items():
            same(found[f"ledger_{name}"], value)
        config = SHOWN[id][0]["parts"]["config"]["value"]
        if batch := config.get("training.batch_global", config.get("training.batch_size")):
            same(found["global_batch_size"], batch)
        times = [line.timestamp for line in lines]
        assert times == sorted(times)
        assert {"init_start", "init_stop", "run_start", "run_stop", "seed"} <= set(found)
        count += len(lines)
    return f"{len(files)} logs, {count} lines"


def check_prometheus():
    from prometheus_client.parser import text_string_to_metric_families

    families = list(text_string_to_metric_families(ledger("export", "--to", "prometheus")))
    samples = {}
    for family in families:
        assert family.type == "gauge" and family.documentation
        for sample in family.samples:
            samples.setdefault(sample.labels["attempt"], []).append(sample)
    suffixes = {
        "s": ("_seconds", 1), "J": ("_joules", 1), "W": ("_watts", 1), "B": ("_bytes", 1), "%": ("_ratio", 0.01),
        "J·s": ("_joule_seconds", 1), "samples/s": ("_samples_per_second", 1), "TFLOP/s": ("_flops", 1e12), "": ("", 1),
    }
    count = 0
    for id, (_, attempt) in SHOWN.items():
        for name, (value, unit) in metrics(attempt).items():
            plain, _, at = name.partition("@")
            suffix, factor = suffixes[unit]
            (found,) = [s for s in samples[id] if s.name == f"ledger_{plain}{suffix}" and s.labels.get("at", "") == at]
            same(found.value, number(value) * factor, 1e-15)
            count += 1
        assert [s.labels["outcome"] for s in samples[id] if s.name == "ledger_attempt_info"] == [attempt["outcome"]]
    return f"{len(families)} families, {count} metrics"


for check in [check_csv, check_jsonl, check_parquet, check_mlflow, check_tensorboard, check_mllog, check_prometheus]:
    print(f"{check.__name__.removeprefix('check_')}: {check()}", flush=True)
print(f"every number of {len(SHOWN)} attempts agrees")
