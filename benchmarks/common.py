"""What the benchmarks share: a table, JSON through a rename, the machine that times were taken on."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gemmule import __version__
from gemmule.io.files import write_atomically

__all__ = ["console", "machine", "run_part", "show", "write"]

console = Console(highlight=False)


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(f"{v:,.4g}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else str(v)
                        for v in row.values()))
    console.print(table)


def write(path: Path, data: Any) -> None:
    """Write JSON, whole or not at all."""
    write_atomically(path, json.dumps(data, indent=1) + "\n")


def run_part(says: str | None, parts: Mapping[str, Callable[[dict[str, Any], Callable[[], None]], None]], name: str,
             head: Mapping[str, Any]) -> None:
    """The command of a benchmark in parts, each of which adds to a record that --out keeps from run to run.

    ``says``: the command's help. ``parts``: each is given the record, and what saves it. ``name``: of the schema and of
    the file in build. ``head``: what else the record says.
    """
    parser = argparse.ArgumentParser(description=says, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--out", type=Path, default=Path(f"build/{name.replace('-', '_')}.json"))
    options = parser.parse_args()
    record: dict[str, Any] = {"schema": f"gemmule/benchmark-{name}/1"} | (
        json.loads(options.out.read_text()) if options.out.is_file() else {})
    record |= {"version": __version__, **head}

    def save() -> None:
        write(options.out, record)

    parts[options.part](record, save)
    save()


def machine() -> dict[str, Any]:
    """What a time depends on: processor, cores, other load (jobs waiting, mean of five minutes), Python."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines()
              if line.startswith("model name")] if cpuinfo.exists() else []
    return {"processor": models[0] if models else platform.machine(), "cores": os.cpu_count(),
            "load_average": round(os.getloadavg()[1], 2), "python": platform.python_version()}
