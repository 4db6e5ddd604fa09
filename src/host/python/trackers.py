"""Prints the runs of a tracker's store as lines of JSON, with every point. Reads only: SQLite with `mode=ro`, RocksDB read-only, and the files of a
file store.

Usage: trackers.py mlflow|trackio|aim PATH, a database or its folder. Each run is a line `{"run": …}`, lines `{"points": [NAME, IS_SYSTEM, [[STEP, MS,
VALUE], …]]}` and a line `{"end": true}`. Values that are no numbers of JSON are "NaN", "Infinity" and "-Infinity"; an unknown time is an empty text.
"""

import datetime
import itertools
import json
import os
import sqlite3
import struct
import sys
import urllib.parse

AT_ONCE = 10_000
# MLflow's databases keep infinities as the greatest double.
GREATEST = sys.float_info.max


def tell(**line):
    sys.stdout.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")


def plain(value):
    if value != value:
        return "NaN"
    if abs(value) >= GREATEST:
        return "Infinity" if value > 0 else "-Infinity"
    return value


def param(value):
    """A parameter: a number, a truth value or a text; of anything else its JSON."""
    if isinstance(value, (bool, int, str)):
        return value
    return plain(value) if isinstance(value, float) else json.dumps(value)


def tell_points(rows, is_system=lambda name: name.startswith("system/")):
    """Rows of name, step, milliseconds and value, ordered by name."""
    name, points = None, []
    for key, step, ms, value in rows:
        if key != name or len(points) == AT_ONCE:
            if points:
                tell(points=[name, is_system(name), points])
            name, points = key, []
        points.append([step, "" if ms is None else ms, plain(value)])
    if points:
        tell(points=[name, is_system(name), points])


def artifacts(uri):
    """How many files the artifacts are, where they lie on this machine."""
    parts = urllib.parse.urlparse(uri or "")
    if parts.scheme not in ("", "file"):
        return 0
    return sum(len(files) for _, _, files in os.walk(urllib.parse.unquote(parts.path)))


def opened(path):
    base = sqlite3.connect("file:" + urllib.parse.quote(os.path.abspath(path)) + "?mode=ro", uri=True)
    base.text_factory = lambda data: data.decode("utf-8", "replace")
    return base


def tell_run(id, name, experiment, status, start_ms, end_ms, deleted, skipped, params, tags):
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
            "skipped": skipped,
            "params": params,
            "tags": tags,
        }
    )


def database(path):
    base = opened(path)
    runs = base.execute(
        "select r.run_uuid, r.name, e.name, r.status, r.start_time, r.end_time, r.lifecycle_stage, r.artifact_uri"
        " from runs r left join experiments e on e.experiment_id = r.experiment_id order by r.start_time, r.run_uuid"
    )
    for id, name, experiment, status, start_ms, end_ms, stage, uri in runs.fetchall():
        pairs = lambda table: dict(base.execute(f"select key, value from {table} where run_uuid = ?", (id,)))  # noqa: E731
        deleted = stage == "deleted"
        skipped = {} if deleted else {"artifact": artifacts(uri)}
        tell_run(id, name, experiment or "Default", status, start_ms, end_ms, deleted, skipped, pairs("params"), pairs("tags"))
        if not deleted:
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
                number("end_time"), deleted, {} if deleted else {"artifact": artifacts(about.get("artifact_uri"))}, params, tags,
            )  # fmt: skip
            if not deleted:
                tell_points(file_points(os.path.join(folder, "metrics")))
            tell(end=True)


def flat(value, name=""):
    """The values of nested objects, under names such as `outer/inner`."""
    if isinstance(value, dict) and "_type" not in value:
        for key, inner in value.items():
            yield from flat(inner, f"{name}/{key}" if name else key)
    else:
        yield name, value


def ms_of(text):
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e3
    except (ValueError, AttributeError):
        return None


def decoded(data):
    return json.loads(data if isinstance(data, str) else data.decode("utf-8", "replace"))


def gathered(rows, skipped):
    """Points by their names, of rows with a step, a time and an object of values. What is no number is counted."""
    found = {}
    for step, ms, values in rows:
        for name, value in flat(decoded(values)):
            if isinstance(value, dict):
                kind = str(value["_type"]).rpartition(".")[2]
                skipped[kind] = skipped.get(kind, 0) + 1
            elif value in ("NaN", "Infinity", "-Infinity") or isinstance(value, (int, float)):
                found.setdefault(name, []).append((name, step, ms, float(value)))
            elif value is not None:
                kind = "text value" if isinstance(value, str) else "list"
                skipped[kind] = skipped.get(kind, 0) + 1
    return [point for name in sorted(found) for point in found[name]]


def trackio(path):
    base = opened(path)
    tables = {name for (name,) in base.execute("select name from sqlite_master where type = 'table'")}
    columns = lambda table: {row[1] for row in base.execute(f"pragma table_info({table})")}  # noqa: E731
    if not {"metrics", "configs"} <= tables or "metrics" not in columns("metrics"):
        raise ValueError("it has no tables `metrics` and `configs` of Trackio")
    project = os.path.splitext(os.path.basename(path))[0]
    # Stores of earlier versions know runs by their names alone.
    key = "run_id" if "run_id" in columns("metrics") else "run_name"
    runs = base.execute(
        f"select {key}, max(run_name) from (select {key}, run_name from metrics union select {key}, run_name from configs) group by 1 order by 1"
    )
    for id, name in runs.fetchall():
        of_run = lambda text: base.execute(text.format(key=key), (id,)).fetchall()  # noqa: B023, E731
        params, created = {}, None
        for (config,) in of_run("select config from configs where {key} = ?"):
            for path_of, value in flat(decoded(config)):
                if path_of == "_Created":
                    created = ms_of(value)
                elif value is not None and not path_of.startswith("_"):
                    params[path_of.replace("/", ".")] = param(value)
        skipped = {}
        rows = of_run("select step, timestamp, metrics from metrics where {key} = ? order by step, id")
        times = [ms for ms in (ms_of(at) for _, at, _ in rows) if ms is not None]
        # All rows of a batch have one time, which is not that of their steps.
        points = gathered(((step, None, values) for step, _, values in rows), skipped)
        system = []
        if "system_metrics" in tables:
            system = of_run("select timestamp, metrics from system_metrics where {key} = ? order by id")
            system = gathered(((0, ms_of(at), values) for at, values in system), skipped)
        for table, kind in (("traces", "trace"), ("alerts", "alert"), ("run_artifact_links", "artifact")):
            if table in tables and key in columns(table):
                ((found,),) = of_run(f"select count(*) from {table} where " + "{key} = ?")
                skipped.update({kind: found} if found else {})
        begun = created if created is not None else min(times, default=0)
        # A name alone may stand in several projects.
        id = id if key == "run_id" else f"{project}/{name}"
        tell_run(id, name, project, "", begun, max(times, default=begun), False, skipped, params, {})
        tell_points(points, lambda _: False)
        tell_points(system, lambda _: True)
        tell(end=True)


def parts_of(key):
    """The parts of a key of Aim's trees: texts, and whole numbers as their eight bytes, which are in order."""
    at, parts = 0, []
    while at < len(key):
        if key[at] == 0xFE:
            parts.append(key[at + 1 : at + 9])
            at += 10
        else:
            end = key.index(b"\xfe", at)
            parts.append(key[at:end].decode("utf-8", "replace"))
            at = end + 1
    return parts


class Other:
    """A value of Aim that is neither a number nor a text."""

    def __init__(self, kind):
        self.kind = kind


def leaf(data):
    """A value of Aim's trees: the first byte is its type."""
    # The keys of blobs have empty values: their data are elsewhere.
    kind, rest = data[0] if data else 5, data[1:]
    if kind == 1:
        return rest != b"\0"
    if kind == 2:
        return int.from_bytes(rest, "little", signed=True)
    if kind == 3:
        return struct.unpack("<d", rest)[0]
    if kind == 4:
        return rest.decode("utf-8", "replace")
    if kind == 15:
        return Other(rest.decode("utf-8", "replace").rpartition(".")[2])
    return None if kind == 0 else Other({5: "bytes", 6: "list", 7: "object"}.get(kind, "value"))


def rows_of(container, first):
    """Keys below `first` and their values, in the order of the keys, from a RocksDB that is opened read-only. A missing folder has none."""
    import aimrocks

    if not os.path.isdir(container):
        return
    try:
        items = aimrocks.DB(container, aimrocks.Options(), read_only=True).iteritems()
        prefix = first.encode() + b"\xfe"
        items.seek(prefix)
        for key, value in items:
            if not key.startswith(prefix):
                return
            yield parts_of(key), leaf(value)
    except Exception as error:  # The exceptions of aimrocks have no class in common.
        raise OSError(f"{container}: {error}") from error


class Items(dict):
    """A list, by its places."""


def put(tree, parts, value):
    for part in parts[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            # A part of an image or another object, which is counted as one value.
            return
    if not isinstance(value, Other) or value.kind not in ("list", "object"):
        tree[parts[-1]] = value
    elif parts[-1] not in tree:
        # It stands before what it holds.
        tree[parts[-1]] = Items() if value.kind == "list" else {}


def whole(tree, skipped):
    """A tree of plain values. Other values are counted and left out."""
    if isinstance(tree, Items):
        return [whole(value, skipped) for value in tree.values() if not isinstance(value, Other) or count(skipped, value.kind)]
    if not isinstance(tree, dict):
        return tree
    named = {str(int.from_bytes(key, "big", signed=True)) if isinstance(key, bytes) else key: value for key, value in tree.items()}
    return {key: whole(value, skipped) for key, value in named.items() if not isinstance(value, Other) or count(skipped, value.kind)}


def count(skipped, kind):
    skipped[kind] = skipped.get(kind, 0) + 1


def series_name(name, context):
    """`loss` in the context `{"subset": "val", "rank": 0}` is `loss/val/rank=0`."""
    if name.startswith("__system__"):
        name = "system/" + name[len("__system__") :]
    pairs = sorted(flat(context), key=lambda pair: (pair[0] != "subset", pair[0]))
    words = [str(value) if key == "subset" else f"{key}={value}" for key, value in pairs]
    return "/".join([name, *words])


def aim_points(container, contexts, skipped):
    """Points by their names. Sequences lie in columns `val`, `step` and `time`; older ones and those of media have their steps as keys."""
    columns, taken = {}, set()
    for parts, value in rows_of(container, "seqs"):
        has_steps = parts[1:2] == ["v2"]
        if len(parts) == (8 if has_steps else 7) and parts[-2] in ("val", "step", "time"):
            context, name, column, at = parts[-4:]
            columns.setdefault((context, name, has_steps), {}).setdefault(column, {})[at] = value
    for key in sorted(columns, key=lambda key: (key[1], key[0], key[2])):
        (context, name, has_steps), found = key, columns.pop(key)
        points, times, steps = [], found.get("time", {}), found.get("step", {})
        for at, value in found.get("val", {}).items():
            step = steps.get(at) if has_steps else int.from_bytes(at, "big", signed=True)
            is_number = isinstance(value, (int, float))
            if is_number and isinstance(step, (int, float)) and float(step).is_integer():
                seconds = times.get(at)
                points.append((int(step), seconds * 1e3 if isinstance(seconds, float) else None, float(value)))
            elif is_number:
                count(skipped, "point without a whole step")
            elif value is not None:
                count(skipped, value.kind if isinstance(value, Other) else "text value")
        points.sort(key=lambda point: (point[0], point[1] or 0))
        own = base = series_name(name, contexts.get(context, {}))
        # `loss/val` without a context has the name of `loss` in the context `val`.
        others = itertools.count(2)
        while own in taken:
            own = f"{base}#{next(others)}"
        taken.add(own)
        yield own, points


def aim(path):
    try:
        import aimrocks  # noqa: F401
    except ImportError:
        raise ValueError("python3 lacks the package that reads Aim's stores (activate a virtual environment with aimrocks)") from None
    inner = os.path.join(path, ".aim")
    path = inner if os.path.isdir(inner) else path
    database_of_runs = os.path.join(path, "run_metadata.sqlite")
    if not os.path.isfile(database_of_runs):
        raise ValueError("it has no run_metadata.sqlite (give the folder that holds .aim)")
    base = opened(database_of_runs)
    runs = base.execute(
        "select r.id, r.hash, r.name, e.name, r.description, r.is_archived, r.created_at from run r"
        " left join experiment e on e.id = r.experiment_id order by r.created_at, r.hash"
    )
    unread = []
    for row in runs.fetchall():
        try:
            aim_run(base, path, *row)
        except (OSError, ValueError) as error:
            unread.append(f"{row[2] or row[1]}: {error}")
    if unread:
        raise ValueError(f"{len(unread)} of its runs cannot be read: {'; '.join(unread[:5])} (the others were imported)")


def aim_run(base, path, number, id, name, experiment, description, is_archived, created):
    trees, skipped = {}, {}
    if "/" in id or id.startswith("."):
        raise ValueError("its hash is a path")
    for parts, value in rows_of(os.path.join(path, "meta", "chunks", id), "meta"):
        if parts[:3] == ["meta", "chunks", id] and len(parts) > 3 and parts[3] in ("attrs", "contexts", "end_time"):
            put(trees, parts[3:], value)
    params, tags = {}, {"description": description, "archived": "true" if is_archived else None}
    attributes = whole(trees.get("attrs", {}), skipped)
    named = {"hparams": attributes.pop("hparams", {})}
    # A parameter outside of `hparams` keeps its name.
    for key, value in {**attributes, **named}.items():
        # Aim's record of the process. Environment variables and packages are many, and may hold secrets.
        of_system = key == "__system_params"
        for place, inner in flat(value, "" if key == "hparams" and isinstance(value, dict) else key):
            words = place.split("/")
            if of_system and words[1:2] in (["env_variables"], ["packages"]):
                count(skipped, "environment variable" if words[1] == "env_variables" else "package")
            elif of_system:
                tags[".".join(["system", *words[1:]])] = inner if isinstance(inner, str) else json.dumps(inner)
            elif inner is not None:
                place = ".".join(words)
                params[f"hparams.{place}" if place in params else place] = param(inner)
    of_run = lambda text: [found for (found,) in base.execute(text, (number,))]  # noqa: E731
    tags["tags"] = ", ".join(of_run("select t.name from tag t join run_tag l on l.tag_id = t.id where l.run_id = ? order by t.name")) or None
    tags["notes"] = "\n\n".join(of_run("select content from note where run_id = ? order by id")) or None
    ended = trees.get("end_time")
    contexts = {key: whole(value, {}) for key, value in trees.get("contexts", {}).items()}
    points = list(aim_points(os.path.join(path, "seqs", "chunks", id), contexts, skipped))
    is_over = isinstance(ended, float)
    # Times in the database are UTC.
    begun, end = ms_of(f"{created}+00:00"), ended * 1e3 if is_over else 0
    tell_run(id, name, experiment or "default", "FINISHED" if is_over else "RUNNING", begun, end, False, skipped, params, tags)
    for own, points_of in points:
        tell_points((own, *point) for point in points_of)
    tell(end=True)


def main():
    tool, path = sys.argv[1:]
    if tool == "aim":
        return aim(path)
    if tool == "trackio":
        if os.path.isdir(path):
            names = [name for name in sorted(os.listdir(path)) if name.endswith(".db")]
            if not names:
                raise ValueError("the folder has no database (expected PROJECT.db)")
            for name in names:
                trackio(os.path.join(path, name))
            return None
        return trackio(path)
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
    sys.exit(str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}")
