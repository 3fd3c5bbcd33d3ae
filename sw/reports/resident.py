"""What stays in DRAM, for the terminal and for the pages of generations and benches."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from gemmule.sw.reports import page

__all__ = ["print_caches", "resident_line", "resident_values"]


def resident_line(found: dict[str, Any]) -> str:
    """A summary in one sentence."""
    models = ", ".join(f"{name} {part['bytes']:,}" + (
        f" (prompts with up to {part['prefill_rows']} rows per launch)" if part["prefill_rows"] else "")
        for name, part in found["models"].items())
    texts = f"{found['batch']} text" + "s" * (found["batch"] > 1)
    return (f"resident: {found['bytes']:,} of {found['dram_bytes']:,} bytes of DRAM: {models}, KV caches "
            f"{found['kv_bytes']:,} ({found['context']:,} positions x {texts}); largest context that fits: "
            f"{found['largest_context']:,} positions ({found['context_limit']}), largest batch: "
            f"{found['largest_batch']} ({found['batch_limit']})")


def _heads(found: dict[str, Any]) -> list[str]:
    lengths = found["by_batch"][0]["kv_bytes"]
    return ["KV cache bytes by texts", *(f"{int(length):,} positions" for length in lengths),
            "positions that fit in DRAM"]


def _rows(found: dict[str, Any]) -> list[list[str]]:
    return [[str(row["batch"]), *(f"{size:,}" for size in row["kv_bytes"].values()), f"{row['dram_context']:,}"]
            for row in found["by_batch"]]


def print_caches(console: Console, found: dict[str, Any]) -> None:
    """Print the cache sizes by context and batch."""
    shown = Table(*_heads(found), box=None, pad_edge=False)
    for column in shown.columns:
        column.justify = "right"
    for row in _rows(found):
        shown.add_row(*row)
    console.print(shown)


def resident_values(found: dict[str, Any]) -> dict[str, Any]:
    """The values that ``templates/resident.html`` needs."""
    return {"resident": resident_line(found), "caches": page.Table(_heads(found), _rows(found))}
