"""Output of the examples in the commands' help, for docs/command-line.md.

    python benchmarks/examples.py --out docs/results/commands.json

Each example runs in a folder that holds start.py, turns.txt and the project's examples, with a report of 100 columns.
Named commands alone: ``--only disasm --only run``; what is not run keeps its recorded output, as do those that take an
hour unless they are named. Afterwards: make pages.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from gemmule.io.files import write_atomically
from gemmule.sw.commands.shared.texts import PROMPT
from gemmule.sw.pages.command_line import commands, examples

ROOT = Path(__file__).resolve().parents[1]
HOURS = ("mutate", "synth")
"""Commands whose examples take that long."""
NEVER = ("cache", "import", "compile", "run model", "sweep")
"""Commands whose examples tell of this machine's own files, or delete them, or need a checkpoint (docs/import.md) or
grid (docs/sweeps.md)."""
TURNS = "def mean(values):\n---\n\n\ndef median(values):\n"
MOST_LINES = 48
"""Of an output; what is longer ends with two dots."""


def output(line: str) -> str:
    """Standard output of an example.

    Raises:
        SystemExit: it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "start.py").write_text(PROMPT)
        (Path(folder) / "turns.txt").write_text(TURNS)
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        done = subprocess.run(
            [sys.executable, "-m", "gemmule", *shlex.split(line)[1:]], cwd=folder, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"COLUMNS": "100"})
    if done.returncode:
        sys.exit(f"{line}: exit code {done.returncode}")
    rows = [row.rstrip() for row in done.stdout.splitlines()]
    return "\n".join([*rows[:MOST_LINES], ".."] if len(rows) > MOST_LINES else rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("docs/results/commands.json"))
    parser.add_argument("--only", action="append", default=[], help="a command; may stand several times")
    args = parser.parse_args()
    before = json.loads(args.out.read_text()) if args.out.is_file() else {}
    after = {}
    for name, command in commands().items():
        for line in () if name in NEVER or name.split()[0] in NEVER else examples(command):
            if name.split()[0] in args.only or not args.only and name not in HOURS:
                print(line, file=sys.stderr, flush=True)
                after[line] = output(line)
            elif line in before:
                after[line] = before[line]
            write_atomically(args.out, json.dumps(before | after, indent=1) + "\n")
    write_atomically(args.out, json.dumps(after, indent=1) + "\n")


if __name__ == "__main__":
    main()
