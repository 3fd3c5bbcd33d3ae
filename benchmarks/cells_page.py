"""Fill the tables of docs/cells.md from docs/results.

    python -m benchmarks.cells_page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmule.sw.reports.markdown import fill_page, table

__all__ = ["PARTS", "main"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cells.md"


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())
    return found


def publisher() -> str:
    """Delays beside the publisher's."""
    return table(("cell", "output", "transition, ns", "load, fF", "here, ns", "publisher, ns", "ratio"), [
        (f"`{row['cell']}`", row["edge"], row["transition_ns"], row["load_ff"], f"{row['here_ns']:.3f}",
         f"{row['publisher_ns']:.3f}", f"{row['ratio']:.2f}") for row in _result("cells")["publisher"]])


def chain() -> str:
    """Nine gates, by two tools."""
    return table(("output", "OpenSTA, ns", "ngspice, ns", "ratio"), [
        (row["edge"], f"{row['opensta_ns']:.3f}", f"{row['ngspice_ns']:.3f}", f"{row['ratio']:.3f}")
        for row in _result("cells")["chain"]])


def _area(found: dict[str, Any], name: str) -> tuple[str, ...]:
    return (name, f"{found['cells']:,}", f"{found['um2'] / 1e6:.3f}", f"{found['gate_equivalents']:,}",
            f"{found['registers_um2'] / found['um2']:.0%}", f"{found['macro_bits'] / 1024:,.1f}",
            f"{found['macros_um2'] / 1e6:.2f}")


def device() -> str:
    """``edge`` in 0.18 um by unit."""
    unit = _result("cells_osu018_edge")["units"]["gemmule"]
    rows = [_area(found, name) for name, found in sorted(unit["parts"].items(), key=lambda item: -item[1]["um2"])
            if found["um2"]]
    return table(("unit", "cells", "mm2", "gates", "flip-flops", "macros, kbit", "macros, mm2"),
                 [*rows, _area(unit["total"], "sum")])


def paths() -> str:
    """The slowest pairs of units of ``edge``."""
    unit = _result("cells_osu018_edge")["units"]["gemmule"]
    told = (f"Between flip-flops: {unit['registers']['ns']:.2f} ns, {unit['registers']['mhz']:.0f} MHz. With the "
            f"macros' outside model: {unit['slowest']['ns']:.2f} ns, {unit['slowest']['mhz']:.0f} MHz.\n\n")
    return told + table(("from", "to", "ns"), [
        (f"{pair['start_unit']}, {pair['ends'][0]}", f"{pair['end_unit']}, {pair['ends'][1]}", f"{pair['ns']:.2f}")
        for pair in unit["pairs"]])


def meshes() -> str:
    """The matrix unit in both libraries."""
    rows = []
    for name, title in (("osu018", "OSU 0.18 um"), ("sky130", "sky130")):
        for config, dim in (("tiny", 4), ("edge", 8), ("mesh32", 32)):
            path = ROOT / "docs" / "results" / f"cells_{name}_{config}_matrix.json"
            if path.is_file():
                unit = json.loads(path.read_text())["units"]["matrix"]
                rows.append((title, f"{dim} x {dim}", f"{unit['total']['um2'] / 1e6:.3f}",
                             f"{unit['total']['gate_equivalents']:,}", f"{unit['registers']['ns']:.2f}",
                             f"{unit['registers']['mhz']:.0f}"))
    return table(("library", "PEs", "mm2", "gates", "between flip-flops, ns", "MHz"), rows)


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part for part in (publisher, chain, device, paths, meshes)}
"""What stands between ``<!-- name -->`` and ``<!-- end -->``."""


def main() -> None:
    """Write the page."""
    fill_page(PAGE, PARTS)


if __name__ == "__main__":
    main()
