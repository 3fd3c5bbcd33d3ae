"""What the benchmarks share: a table, JSON through a rename, the machine that times were taken on."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gemmule.io.files import write_atomically

__all__ = ["console", "machine", "show", "write"]

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


def machine() -> dict[str, Any]:
    """What a time depends on: processor, cores, other load (jobs waiting, mean of five minutes), Python."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines()
              if line.startswith("model name")] if cpuinfo.exists() else []
    return {"processor": models[0] if models else platform.machine(), "cores": os.cpu_count(),
            "load_average": round(os.getloadavg()[1], 2), "python": platform.python_version()}
