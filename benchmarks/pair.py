"""Every result that the default pair's files decide, recorded again: what to run when they change.

    python -m benchmarks.pair --train build/train

The commands below run one behind the other; what is done for the same files of the pair is kept in
--work and passed over, so that a run that was stopped goes on. --only takes some of them by name. A command that fails
ends the run with its exit code. Tables and pages are filled in at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.common import console, write
from gemmule.sw.limits import DEFAULT, MODELS_FOLDER

RESULTS = "docs/results"
COMMANDS = {
    "tokens": f"benchmarks/tokens.py --out {RESULTS}",
    "overlap": f"-m gemmule study overlap --json {RESULTS}/study_overlap.json",
    "launches": f"benchmarks/launches.py --prompts 2 --out {RESULTS}/launches.json",
    "prefill": f"benchmarks/prefill.py --out {RESULTS}/prefill.json",
    "models": f"-m gemmule.sw.training.measure --train {{train}} --out {RESULTS}/models.json",
    "activation": f"-m gemmule study activation --json {RESULTS}/study_activation.json",
    "softmax": f"-m gemmule study softmax --json {RESULTS}/study_softmax.json",
    "attention": f"-m gemmule study attention --json {RESULTS}/study_attention.json",
    "weights": f"-m benchmarks.weights --out {RESULTS}",
    "speculation": f"benchmarks/speculation.py --calibration 10 --out {RESULTS}/speculation.json",
    "equality": f"-m benchmarks.equality --model default --prompts 100 --out {RESULTS}/equality.json",
    "equality int4": f"-m benchmarks.equality --model default --weights int4 --batch 4 --prompts 40 --out "
                     f"{RESULTS}/equality.json",
    "decode_rtl": f"-m benchmarks.decode_rtl --out {RESULTS}/decode_rtl.json",
}
PAGES = {
    "training": "-m gemmule.sw.training.report",
    "examples": f"benchmarks/examples.py --only generate --out {RESULTS}/commands.json",
    "tutorial": "examples/tutorial.py product --write",
    "tutorial on speculation": "examples/tutorial.py speculation --write",
    "readme": "-m benchmarks.readme",
    "pages": "-m gemmule.sw.pages",
}
"""Filled in from what the commands have written; quick, and run every time."""


def digest(folder: Path) -> str:
    """SHA-256 of a pair's target and draft."""
    return hashlib.sha256(b"".join((folder / f"{name}.safetensors").read_bytes()
                                   for name in ("target", "draft"))).hexdigest()


def outdated(done: dict[str, str], mark: str, only: list[str] | None) -> list[str]:
    """The commands to run, in their order: those that are not recorded for files with this mark."""
    return [name for name in COMMANDS if (not only or name in only) and done.get(name) != mark]


def main() -> None:
    """Run what is outdated, then fill in the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, default=Path("build/train"), help="the pair's float checkpoints")
    parser.add_argument("--only", action="append", choices=tuple(COMMANDS), help="this one alone; again for another")
    parser.add_argument("--work", type=Path, default=Path("build/pair.json"))
    args = parser.parse_args()
    mark = digest(MODELS_FOLDER / DEFAULT)
    done = json.loads(args.work.read_text(encoding="utf-8")) if args.work.is_file() else {}
    names = outdated(done, mark, args.only)
    for name, command in [(name, COMMANDS[name]) for name in names] + list(PAGES.items()):
        began = time.monotonic()
        console.print(f"[bold]{name}[/bold]: python {command.format(train=args.train)}")
        found = subprocess.run([sys.executable, *command.format(train=args.train).split()], check=False)
        if found.returncode:
            sys.exit(found.returncode)
        if name in COMMANDS:
            done[name] = mark
            write(args.work, done)
        console.print(f"{name}: {time.monotonic() - began:,.0f} s")


if __name__ == "__main__":
    main()
