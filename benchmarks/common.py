"""What the benchmarks share: a table, JSON through a rename, prompts from the standard library."""

from __future__ import annotations

import hashlib
import json
import os
import sysconfig
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["console", "prompts", "show", "write"]

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
    """Write JSON through a temporary file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(part, path)


def prompts(count: int) -> list[tuple[str, str]]:
    """``count`` (name, text) prompts: beginnings and middles of standard library files, in a fixed order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(
        (p for p in root.glob("*.py") if 2000 < p.stat().st_size < 80000),
        key=lambda p: hashlib.md5(p.name.encode()).hexdigest())
    found = []
    for i, path in enumerate(files[:count]):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        start = 0 if i % 3 == 0 else (len(lines) * (i % 7 + 1)) // 9
        found.append((f"{path.name}:{start + 1}", "".join(lines[start:start + 1 + i % 5]) or "\n"))
    return found
