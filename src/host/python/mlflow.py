"""Prints the runs of an MLflow store as lines of JSON, with every point. Reads only: SQLite with `mode=ro`, and the files of a file store.

Usage: mlflow.py PATH, a database or a folder with experiments. Each run is a line `{"run": …}`, lines `{"points": [NAME, [[STEP, MS, VALUE], …]]}`
and a line `{"end": true}`. Values that are no numbers of JSON are "NaN", "Infinity" and "-Infinity".
"""

import json
import os
import sqlite3
import sys
import urllib.parse

AT_ONCE = 10_000
# MLflow's databases keep infinities as the greatest double.
GREATEST = sys.float_info.max


def tell(**line):
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")


def plain(value):
    if value != value:
        return "NaN"
    if abs(value) >= GREATEST:
        return "Infinity" if value > 0 else "-Infinity"
    return value


def tell_points(rows):
    """Rows of name, step, milliseconds and value, ordered by name."""
    name, points = None, []
    for key, step, ms, value in rows:
        if key != name or len(points) == AT_ONCE:
            if points:
                tell(points=[name, points])
            name, points = key, []
        points.append([step, ms, plain(value)])
    if points:
        tell(points=[name, points])


def artifacts(uri):
    """How many files the artifacts are, where they lie on this machine."""
    parts = urllib.parse.urlparse(uri or "")
    if parts.scheme not in ("", "file"):
        return 0
    return sum(len(files) for _, _, files in os.walk(urllib.parse.unquote(parts.path)))


def tell_run(id, name, experiment, status, start_ms, end_ms, deleted, uri, params, tags):
    name = name or tags.get("mlflow.runName") or id
    tags = {key[7:] if key.startswith("mlflow.") else key: value for key, value in tags.items() if value is not None}
    tags.pop("runName", None)
    tell(
        run={
            "id": id,
            "name": name,
            "experiment": experiment,
            "status": status or "",
            "start_ms": start_ms or 0,
            "end_ms": end_ms or 0,
            "deleted": deleted,
            "artifacts": 0 if deleted else artifacts(uri),
            "params": params,
            "tags": tags,
        }
    )


def database(path):
    base = sqlite3.connect("file:" + urllib.parse.quote(os.path.abspath(path)) + "?mode=ro", uri=True)
    base.text_factory = lambda data: data.decode("utf-8", "replace")
    runs = base.execute(
        "select r.run_uuid, r.name, e.name, r.status, r.start_time, r.end_time, r.lifecycle_stage, r.artifact_uri"
        " from runs r left join experiments e on e.experiment_id = r.experiment_id order by r.start_time, r.run_uuid"
    )
    for id, name, experiment, status, start_ms, end_ms, stage, uri in runs.fetchall():
        pairs = lambda table: dict(base.execute(f"select key, value from {table} where run_uuid = ?", (id,)))  # noqa: E731
        tell_run(id, name, experiment or "Default", status, start_ms, end_ms, stage == "deleted", uri, pairs("params"), pairs("tags"))
        if stage != "deleted":
            rows = base.execute(
                "select key, step, timestamp, value, is_nan from metrics where run_uuid = ? order by key, step, timestamp", (id,)
            )
            tell_points((key, step, ms, float("nan") if is_nan else value) for key, step, ms, value, is_nan in rows)
        tell(end=True)


def meta(path):
    """The members of a `meta.yaml`: MLflow writes one a line, a plain or a quoted scalar."""
    found = {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, is_member, value = line.partition(":")
            if is_member and not line[0].isspace():
                value = value.strip()
                if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                    value = value[1:-1].replace("''", "'") if value[0] == "'" else json.loads(value)
                found[key] = "" if value in ("null", "~") else value
    return found


def texts(folder):
    """The files below a folder by their paths, which are names."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, encoding="utf-8", errors="replace") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def file_points(folder):
    for key, text in sorted(texts(folder).items()):
        for line in text.splitlines():
            words = line.split()
            if len(words) >= 2:
                yield key, int(words[2]) if len(words) > 2 else 0, int(words[0]), float(words[1])


STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}


def store(path):
    for experiment in sorted(os.listdir(path)):
        place = os.path.join(path, experiment)
        of_experiment = os.path.join(place, "meta.yaml")
        if not os.path.isfile(of_experiment):
            continue
        named = meta(of_experiment).get("name") or experiment
        for id in sorted(os.listdir(place)):
            folder = os.path.join(place, id)
            path_of_meta = os.path.join(folder, "meta.yaml")
            if not os.path.isfile(path_of_meta) or not os.path.isdir(os.path.join(folder, "metrics")):
                continue
            about = meta(path_of_meta)
            number = lambda key: int(about.get(key) or 0)  # noqa: B023, E731
            deleted = experiment == ".trash" or about.get("lifecycle_stage") == "deleted"
            status = about.get("status", "")
            params, tags = texts(os.path.join(folder, "params")), texts(os.path.join(folder, "tags"))
            tell_run(
                about.get("run_uuid") or id, about.get("run_name"), named, STATUS.get(status, status), number("start_time"),
                number("end_time"), deleted, about.get("artifact_uri"), params, tags,
            )  # fmt: skip
            if not deleted:
                tell_points(file_points(os.path.join(folder, "metrics")))
            tell(end=True)


def main():
    path = sys.argv[1]
    if not os.path.isdir(path):
        return database(path)
    # The folder in which MLflow was started has either.
    for name in ("mlflow.db", "mlruns.db"):
        if os.path.isfile(os.path.join(path, name)):
            return database(os.path.join(path, name))
    inner = os.path.join(path, "mlruns")
    return store(inner if os.path.isdir(inner) else path)


try:
    main()
except (sqlite3.Error, OSError, ValueError) as error:
    sys.exit(f"{type(error).__name__}: {error}")
