#!/usr/bin/env python3
"""Records the terminal session of this folder: run, kill, run again, best, why, rerun.

    docs/pictures/record.py [--check] [LEDGER]

LEDGER is the program (default: target/release/ledger). It executes the README's example in a new folder and writes
`terminal.svg`. With --check the committed file stays as it is; exit code 1 if it has a line whose form the program does not print
now. Ids, numbers and times differ from machine to machine and are not compared.
"""

import html
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
README = HERE.parent.parent / "README.md"
PICTURE = HERE / "terminal.svg"
COLUMNS = 100
# Seconds before the first line of an answer, and between two of its lines.
PAUSE, STEP = 1.4, 0.06


def blocks(language):
    """The README's code blocks of that language."""
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.S)


class Session:
    """Commands that were executed, with what they printed."""

    def __init__(self, program, folder):
        self.program, self.folder, self.lines = program, folder, []
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "LEDGER_DIR": str(folder / "ledger"),
        }

    def run(self, *arguments, kill_after=None):
        """Executes a command. `kill_after=(text, n)` kills it at the n-th line that contains the text."""
        self.lines.append(("command", "$ ledger " + " ".join(arguments)))
        child = subprocess.Popen(
            [self.program, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        printed, seen = [], 0
        for line in child.stdout:
            printed.append(line.rstrip("\n"))
            if kill_after and kill_after[0] in line:
                seen += 1
                if seen == kill_after[1]:
                    os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        self.lines += [("output", line) for line in printed]
        if kill_after:
            self.lines.append(("output", "Killed"))
        return "\n".join(printed)


def recorded(program):
    """The lines of the session: what they are, and their text."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "train.py").write_text(next(block for block in blocks("python") if "random.gauss" in block))
        (folder / "lr.toml").write_text(next(block for block in blocks("toml") if "train.py" in block))
        (folder / "ledger").mkdir(mode=0o700)
        session = Session(program, folder)
        session.run("run", "lr.toml", kill_after=("finished", 4))
        session.run("run", "lr.toml")
        best = session.run("best", "--metric", "loss")
        first, second = re.findall(r"^\s*[12]\s+([0-9a-f]{8})", best, re.M)
        session.run("why", first, second)
        session.run("rerun", first)
        return session.lines


def form(lines):
    """The lines without what differs from machine to machine: ids, numbers, units of time, and that a machine was busy."""
    calm = (re.sub(r", tainted| \(times and energies are tainted.*", "", text) for _, text in lines)
    named = (re.sub(r"\b[0-9a-f]{8}\b", "ID", text) for text in calm)
    numbered = (re.sub(r"[0-9][0-9.,]*( (µs|ms|s)\b)?", "N", text) for text in named)
    return {" ".join(text.split()) for text in numbered if "fastest" not in text}


def folded(lines):
    """The lines as the terminal would show them: long ones go on in the next row."""
    for kind, text in lines:
        for at in range(0, max(1, len(text)), COLUMNS):
            yield kind, text[at : at + COLUMNS]


def drawn(lines):
    """The session as an SVG: the lines appear one after the other, and all stay."""
    rows, at, y = [], 0.4, 44
    for kind, text in folded(lines):
        if kind == "command":
            at += PAUSE if rows else 0
            y += 8 if rows else 0
        rows.append(f'<text class="line {kind}" x="16" y="{y}" style="animation-delay:{at:.2f}s">{html.escape(text)}</text>')
        at += PAUSE / 2 if kind == "command" else STEP
        y += 17
    width, height = 32 + round(COLUMNS * 7.83), y + 4
    commands = "; ".join(text[2:] for kind, text in lines if kind == "command")
    style = (
        "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d8dee9;white-space:pre}"
        ".command{font-weight:bold}"
        ".line{animation:shown 1ms both}"
        "@keyframes shown{from{opacity:0}to{opacity:1}}"
        "@media (prefers-reduced-motion:reduce){.line{animation:none}}"
        "@media print{.line{animation:none}}"
    )
    dots = "".join(f'<circle cx="{20 + 18 * i}" cy="18" r="5" fill="{c}"/>' for i, c in enumerate(("#f07178", "#ffcb6b", "#a5d6a7")))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
        "<title>A terminal session with ledger</title>\n"
        f"<desc>{html.escape(commands)}</desc>\n<style>{style}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#20242c"/>{dots}\n' + "\n".join(rows) + "\n</svg>\n"
    )


def main():
    arguments = sys.argv[1:]
    is_check = arguments[:1] == ["--check"]
    program = str(Path((arguments[1:] if is_check else arguments)[0] if len(arguments) > is_check else HERE.parent.parent / "target/release/ledger").resolve())
    lines = recorded(program)
    if not is_check:
        PICTURE.write_text(drawn(lines))
        return 0
    texts = re.findall(r'<text class="line (\w+)"[^>]*>(.*?)</text>', PICTURE.read_text())
    if not texts:
        print("terminal.svg has no lines (run docs/pictures/record.py)", file=sys.stderr)
        return 1
    committed = form((kind, html.unescape(text)) for kind, text in texts)
    stale = sorted(committed - form(folded(lines)))
    for text in stale:
        print(f"terminal.svg has a line that the program does not print (run docs/pictures/record.py): {text}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
