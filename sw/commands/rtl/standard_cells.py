"""What ``gemmule synth`` shows of standard cells: area by unit, gate equivalents, the slowest paths."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmule.sw.commands.shared.common import Output

if TYPE_CHECKING:
    from gemmule.config import Config
    from gemmule.hw.flow.standard.library import Library
    from gemmule.hw.flow.standard.mapped import CellArea, Mapped
    from gemmule.hw.flow.standard.slack import CellPath, Slack
    from gemmule.hw.flow.tools import Tools

__all__ = ["synthesize_cells"]


def synthesize_cells(out: Output, config: Config, units: list[str], library: Library, tools: Tools,
                     root: Path) -> dict[str, Any]:
    """Map each of ``units`` to ``library`` and print area and paths; the record that ``--json`` writes.

    Raises:
        SynthError: a tool or the library is missing, or a tool failed.
    """
    from gemmule.hw.flow.standard.mapped import map_cells
    from gemmule.hw.flow.standard.slack import slack_of, version
    from gemmule.io.progress import say, stderr

    record: dict[str, Any] = {"library": library.title, "tools": tools.versions("yosys") | {"sta": version()},
                              "macros": library.macros.source, "units": {}}
    for unit in units:
        title, begin = f"{config.name}: {unit}", time.monotonic()
        with stderr.status(title) as status:

            def progress(step: str, title: str = title, begin: float = begin) -> None:
                status.update(f"{title}, {time.monotonic() - begin:.0f} s: {step}")

            mapped = map_cells(unit, config, library, root, tools=tools, progress=progress)
            progress("timing")
            slack = slack_of(mapped)
        say(f"{title}: {time.monotonic() - begin:.0f} s")
        _show(out, config, mapped, slack)
        record["units"][unit] = _record(mapped, slack)
    return record


def _record(mapped: Mapped, slack: Slack) -> dict[str, Any]:
    def area(found: CellArea) -> dict[str, Any]:
        return asdict(found) | {"gate_equivalents": round(found.um2 / mapped.nand2_um2)}

    def path(found: CellPath | None) -> dict[str, Any] | None:
        return None if found is None else asdict(found) | {"ends": found.ends, "mhz": found.mhz}

    return {"total": area(mapped.total), "parts": {name: area(found) for name, found in sorted(mapped.parts.items())},
            "nand2_um2": mapped.nand2_um2, "slowest": path(slack.path), "registers": path(slack.registers),
            "pairs": [path(pair) for pair in slack.pairs]}


def _show(out: Output, config: Config, mapped: Mapped, slack: Slack) -> None:
    from rich.table import Table

    total = mapped.total
    out.print(f"{config.name}: {mapped.unit} in {mapped.library.title}; before layout, ideal clock")
    table = Table(box=None, pad_edge=False)
    table.add_column("unit")
    for name in ("cells", "mm2", "gates", "flip-flops", "macros kbit", "macros mm2"):
        table.add_column(name, justify="right")

    def row(name: str, found: CellArea) -> None:
        table.add_row(name, f"{found.cells:,}", f"{found.um2 / 1e6:.3f}", f"{found.um2 / mapped.nand2_um2:,.0f}",
                      f"{found.registers_um2 / found.um2:.0%}" if found.um2 else "", f"{found.macro_bits / 1024:,.1f}",
                      f"{found.macros_um2 / 1e6:.3f}")

    for name, found in sorted(mapped.parts.items(), key=lambda item: -item[1].um2):
        row(name, found)
    if len(mapped.parts) > 1:
        row("sum", total)
    out.console.print(table)
    out.print("gates: areas of one NAND2; flip-flops: their share of the area; macros by an outside model: "
              f"{mapped.library.macros.source}")
    if slack.registers is not None:
        out.print(f"between flip-flops: {slack.registers.ns:.2f} ns, {slack.registers.mhz} MHz")
    if slack.path != slack.registers:
        out.print(f"with macros, inputs and outputs: {slack.path.ns:.2f} ns, {slack.path.mhz} MHz")
    pairs = Table(box=None, pad_edge=False)
    for name in ("slowest path from", "to"):
        pairs.add_column(name)
    pairs.add_column("ns", justify="right")
    for pair in slack.pairs:
        start, end = pair.ends
        pairs.add_row(f"{pair.start_unit}, {start}", f"{pair.end_unit}, {end}", f"{pair.ns:.2f}")
    out.console.print(pairs)
