"""Cost of logging two scalars in a training loop: the median, the 99th percentile and the longest of CALLS calls, and all of them with their end.

    python -m venv VENV && VENV/bin/pip install tensorboardX trackio     # outside of the repository
    VENV/bin/python benches/python_calls.py [CALLS]                      # default 20000

Each tool is measured in a process of its own. A tool that is not installed is left out with a line. For `ledger_events`, another
process reads the pipe as the supervisor does. `pause` is one with 1 ms of sleep between calls, as in a loop that waits for a GPU.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python"
READER = "import os\nwhile os.read(0, 1 << 16): pass"


def ledger(folder):
    pipe = os.path.join(folder, "events")
    os.mkfifo(pipe)
    # Open for both directions, as the supervisor has it.
    gate = os.open(pipe, os.O_RDWR)
    reader = subprocess.Popen([sys.executable, "-c", READER], stdin=gate)
    os.environ["LEDGER_EVENTS"] = pipe
    sys.path.insert(0, str(PACKAGE))
    import ledger_events

    def end():
        ledger_events.flush()
        reader.kill()
        return f"{ledger_events._client.dropped} dropped"

    return lambda step: ledger_events.log(step, loss=1.0 / (step + 1), accuracy=0.5), end


def tensorboardx(folder):
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(folder)

    def log(step):
        writer.add_scalar("loss", 1.0 / (step + 1), step)
        writer.add_scalar("accuracy", 0.5, step)

    return log, writer.close


def trackio(folder):
    os.environ["TRACKIO_DIR"] = folder
    import trackio

    trackio.init(project="bench", embed=False)
    return lambda step: trackio.log({"loss": 1.0 / (step + 1), "accuracy": 0.5}, step=step), trackio.finish


TOOLS = {"ledger_events": ledger, "tensorboardX": tensorboardx, "trackio": trackio}


def measure(tool, calls, pause_s):
    with tempfile.TemporaryDirectory() as folder:
        log, end = TOOLS[tool](folder)
        for step in range(200):
            log(step)
        took = []
        begun = time.perf_counter_ns()
        for step in range(200, 200 + calls):
            start = time.perf_counter_ns()
            log(step)
            took.append(time.perf_counter_ns() - start)
            if pause_s:
                time.sleep(pause_s)
        said = end()
        all_ns = time.perf_counter_ns() - begun
    took.sort()
    each = f"{all_ns / calls / 1e3:9.2f}" if not pause_s else "        -"
    print(
        f"{tool:<14} {'pause' if pause_s else 'tight':<6} {took[calls // 2] / 1e3:9.2f} {took[calls * 99 // 100] / 1e3:9.2f}"
        f" {took[-1] / 1e3:10.1f} {each}  {said or ''}",
        flush=True,
    )


def main():
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    if len(sys.argv) > 3:
        measure(sys.argv[2], calls, float(sys.argv[3]))
        return
    print(f"Python {sys.version.split()[0]}, {calls} calls of two scalars, in µs\n{'':<14} {'':<6}    median       p99    longest  with end")
    for tool in TOOLS:
        for pause in ("0", "0.001"):
            ran = subprocess.run([sys.executable, __file__, str(calls), tool, pause], stderr=subprocess.PIPE, text=True, check=False)
            if ran.returncode:
                last = (ran.stderr.strip().splitlines() or ["no output"])[-1]
                print(f"{tool:<14} left out: {last}", flush=True)
                break


main()
