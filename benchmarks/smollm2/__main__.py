"""SmolLM2-135M-Instruct on the device: how faithful, how fast.

    python -m benchmarks.smollm2 quality speed decoding

A published model is taken (`gemmule import smollm2`), quantised as import does, and measured part by part. What is done
is in the result file and passed over: a run that was ended goes on. ``--again`` measures a part anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.common import machine, write
from gemmule import __version__

PARTS = ("speed", "quality", "planted", "requests", "decoding", "rtl", "tool")
RESULT = Path("docs/results/smollm2.json")
TIMED = ("tool",)
"""Parts whose numbers depend on the machine."""


def main(arguments: list[str] | None = None) -> None:
    """Measure parts, and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; none: all")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--again", action="store_true", help="also what is done already")
    args = parser.parse_args(arguments)
    if unknown := [part for part in args.parts if part not in PARTS]:
        parser.error(f"a part must be one of {', '.join(PARTS)}, not {unknown[0]!r}")

    def kept() -> dict[str, Any]:
        return json.loads(args.out.read_text()) if args.out.is_file() else {}

    for name in args.parts or PARTS:
        part: dict[str, Any] = {} if args.again else kept().get(name, {})

        def save(name: str = name, part: dict[str, Any] = part) -> None:  # others may measure other parts meanwhile
            write(args.out, kept() | {"schema": "gemmule/benchmark-smollm2/1", "version": __version__, name: part})

        measure: Callable[[dict[str, Any], Callable[[], None]], None] = getattr(
            import_module(f"benchmarks.smollm2.{name}"), name)
        measure(part, save)
        if name in TIMED:
            part["machine"] = machine()
        save()


if __name__ == "__main__":
    main()
