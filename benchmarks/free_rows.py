"""How many rows a pass takes at the cost of one, by device, model and context; and what sixteen cost.

    python -m benchmarks.free_rows --out docs/results/free_rows.json
    python -m benchmarks.free_rows --page

Cycles of the device, by time alone, which needs no weights: exact for these shapes. A row is a device and a model: a
decoder of two layers whose sizes go with the device's DIM (`benchmarks/verify_rows.py`), or SmolLM2 and GPT-2 as they
are published, but on `tiny`, where mapping them takes too long. Programs are compiled for all of the model's positions,
for as many rows as decoding has by default and for up to 16, 32 and 64, or where none of these fits for 8, 4, 2 or 1,
with those for fewer rows or positions beside each (`compiler/search/narrow.py`); a pass takes the one with the fewest
cycles. *Free* are as many rows as cost at most 1.03 of one. A context that leaves no room for the rows is shortened by
them. Rows of the table that --out already has are not measured again. --page fills docs/adaptive.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common import console, show, write
from benchmarks.verify_rows import sizes
from gemmule import __version__
from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.architectures import architecture
from gemmule.compiler.ir import Network
from gemmule.compiler.passes.map import choices, default_rows
from gemmule.compiler.place import round_up
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.compiler.search.narrow import narrow_programs
from gemmule.config import Config, load_config
from gemmule.sw.device.costs.cost_curve import CHEAP, GREEDY, CostCurve
from gemmule.sw.reports.markdown import fill_page, table
from gemmule.sw.studies.smollm2 import NETWORK
from tests.compiler.integer_networks import random_network

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "results" / "free_rows.json", ROOT / "docs" / "adaptive.md"
DEVICES = ("tiny", "edge", "base", "examples/configs/large/acc128.yaml", "examples/configs/unusual/dim32.yaml")
CONTEXTS, WIDTHS, WIDE = (64, 256, 512, 1024), (16, 32, 64), 16
NARROW = (8, 4, 2, 1)
"""Rows that are tried where no more fit."""
SHAPES = {"SmolLM2": NETWORK, "GPT-2": architecture("gpt2")}
OWN = "decoder of its size"
Record = dict[str, Any]


@dataclass(frozen=True)
class Programs:
    """Of one network, as a pass is planned with."""

    program: ModelProgram
    narrow: tuple[ModelProgram, ...]
    name: str = "target"
    prefill: None = None
    sampled: None = None
    slots: None = None


def programs(network: Network, config: Config) -> Iterator[Programs]:
    """For each number of rows that fits the device.

    Raises:
        CompileError: none does; the message is that of the fewest rows.
    """
    refused, found = "", 0
    for width in dict.fromkeys((default_rows(network.graph, config), *WIDTHS, *NARROW)):
        if found and width in NARROW:
            break
        try:
            if not choices(network.graph, config, rows=width, batch=1, context=network.graph.whole_positions,
                           tokens=True):
                raise CompileError(f"no mapping of {width} rows a launch fits")
            made = compile_network(network, config, rows=width, tokens=True, checked=False)
        except CompileError as error:
            refused = str(error)
            continue
        found += 1
        base = round_up(made.base_address + made.size, config.dram.banks * config.dram.row_bytes)
        yield Programs(made, narrow_programs(network, made, base_address=base))
    if not found:
        raise CompileError(refused)


def measure(config: Config, name: str) -> Record:
    """A row of the table."""
    network = by_shape(SHAPES[name].graph()) if name in SHAPES else random_network(
        replace(sizes(config), layers=2, positions=2048), 1, weights=False)
    try:
        curves = [CostCurve(one) for one in programs(network, config)]
    except CompileError as error:
        return {"config": config.name, "dim": config.dim, "model": name, "refused": str(error), "contexts": []}
    most = max(curve.model.program.max_rows for curve in curves)

    def cycles(rows: int, cached: int) -> int:
        """Of one launch, host left out."""
        return min(curve.of(rows, cached, GREEDY) for curve in curves
                   if curve.model.program.max_rows >= rows) - config.host.launch_cycles

    contexts = []
    for cached in CONTEXTS:
        costs = [cycles(1, cached)]
        while len(costs) < most and costs[-1] <= CHEAP * costs[0]:
            costs.append(cycles(len(costs) + 1, cached))
        free = len(costs) if costs[-1] <= CHEAP * costs[0] else len(costs) - 1
        contexts.append({"cached": cached, "one_row": costs[0], "free": free,
                         "wide": cycles(WIDE, cached) / costs[0] if most >= WIDE else None})
        console.print(f"{config.name}, {name}, {cached} cached: {contexts[-1]}")
    return {"config": config.name, "dim": config.dim, "model": name, "most_rows": most, "refused": None,
            "contexts": contexts}


def free_rows() -> str:
    """The table."""
    found = json.loads(RESULTS.read_text())["rows"]
    heads = ("device", "DIM", "model", *(f"{cached:,} cached" for cached in CONTEXTS))
    return table(heads, [
        (f"`{row['config']}`", row["dim"], row["model"], *(
            ["does not fit"] * len(CONTEXTS) if row["refused"] else [_cell(one, row) for one in row["contexts"]]))
        for row in found])


def _cell(one: Record, row: Record) -> str:
    """Free rows, with a sign where the program has no more, and what sixteen cost."""
    more = "≥ " * (one["free"] == row["most_rows"])
    return f"{more}{one['free']}, " + ("-" if one["wide"] is None else f"{one['wide']:.3f}")


PARTS = {"free rows": free_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/free_rows.json"))
    parser.add_argument("--page", action="store_true", help="fill the page from docs/results, and measure nothing")
    args = parser.parse_args()
    if args.page:
        fill_page(PAGE, PARTS)
        return
    rows = json.loads(args.out.read_text())["rows"] if args.out.is_file() else []
    known = {(row["config"], row["model"]) for row in rows}
    configs = [load_config(device) for device in DEVICES]
    names = [config.name for config in configs]
    for config in configs:
        for name in (OWN, *(SHAPES if config.dim > 4 else ())):
            if (config.name, name) not in known:
                rows.append(measure(config, name))
                rows.sort(key=lambda row: (names.index(row["config"]), [OWN, *SHAPES].index(row["model"])))
                write(args.out, {"schema": "gemmule/benchmark-free-rows/1", "version": __version__,
                                 "command": "python -m benchmarks.free_rows", "cheap": CHEAP, "rows": rows})
    show(f"rows at {CHEAP} of one, by cached rows", [
        {"config": row["config"], "model": row["model"],
         **{f"{one['cached']}": f"{one['free']}, {one['wide']}" for one in row["contexts"]}} for row in rows])


if __name__ == "__main__":
    main()
