"""Mappings of products by formula and by three searches over one space, and of a BERT layer by branch and bound.

    python benchmarks/search.py --out docs/results
    python benchmarks/search.py --out docs/results --only layer

Cycles are of the exact simulator, timing only. Exhaustive search gives the optimum of the space, but for problems on
which --most stops it. Seconds are processor time, so that other work on the machine hardly counts; nothing comes from
the cache.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import console, machine, show, write

from gemmule.compiler.importers.architectures import architecture
from gemmule.compiler.kernels.product import ProductShape
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.mapping import branch_and_bound
from gemmule.compiler.mapping.mapper import Mapper
from gemmule.compiler.passes.encoder.map import EncoderMapping
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.compiler.search.layer import layer_bound, layer_cost, layer_mapping, layer_spaces, phase_cost
from gemmule.compiler.search.product import SEARCHES, search_product
from gemmule.config import Config, load_config

PROBLEMS = [
    ("tiny", 1, "20x33x17", 8, 0), ("tiny", 1, "16x64x64", 8, 0), ("tiny", 1, "1x64x128", 8, 0),
    ("tiny", 4, "12x32x48", 8, 0), ("tiny", 4, "40x64x64", 8, 0), ("edge", 1, "16x64x128", 8, 0),
    ("edge", 1, "16x128x256", 8, 0), ("edge", 1, "1x256x512", 8, 0), ("base", 1, "32x64x128", 8, 0),
    ("base", 1, "1x256x1024", 8, 0), ("base", 1, "16x256x256", 4, 64), ("base", 8, "64x128x128", 8, 0),
]
"""Preset, cycles of a beat of its DRAM, shape, bits of weights and the depth that shares a scale."""
LAYER, LAYERS = "layer", [("base", "bert-base", 128), ("base", "bert-base", 512)]
"""Preset, architecture, and rows of a sequence."""


def device(preset: str, beat: int) -> Config:
    """The preset, or the same with a slower DRAM."""
    config = load_config(preset)
    if beat == config.dram.beat_cycles:
        return config
    return Config(**(config.model_dump() | {
        "name": f"{preset}-beat{beat}", "dram": config.dram.model_dump() | {"beat_cycles": beat}}))


def measure(config: Config, size: str, bits: int, group: int, most: int, methods: Sequence[str]) -> dict[str, Any]:
    """Of one problem, a row with cycles and seconds of each of ``methods``."""
    m, k, n = map(int, size.split("x"))
    shape = ProductShape(m=m, k=k, n=n, weights=WeightFormat(bits, group))
    row: dict[str, Any] = {"device": config.name, "shape": size,
                           "weights": f"int{bits}" + (f", scale per {group}" if group else "")}
    for method in methods:
        begin = time.process_time()
        found = search_product(config, shape, ("ws",), method, most if method == "exhaustive" else None, kept=False)
        row["formula"] = found.first_cycles
        row[method] = found.cycles
        row[f"{method} seconds"] = time.process_time() - begin
        row[f"{method} simulated"] = len(found.trials)
        if method == "exhaustive":
            row["optimum"] = found.certified
    return row


def measure_layer(config: Config, name: str, sequence: int) -> list[dict[str, Any]]:
    """Of each fused phase of a layer, a row: cycles of the first mapping that fits and of the certified optimum.

    And one of the layer with these optima as one program, beside what no layer can be faster than.
    """
    network, rows = by_shape(architecture(name).resized("layers", 1).graph(), bits=8, head_bits=8, group=32), []
    spaces, optima = layer_spaces(network, config, sequence), {}
    for phase, space in spaces.items():
        cost = phase_cost(network, config, phase, sequence)
        cost(space.begin)  # loads the compiled engine
        begin = time.process_time()
        found = Mapper[Any](space, cost).find(branch_and_bound.search)
        seconds = time.process_time() - begin
        assert found is not None
        optima[phase] = found
        rows.append({"device": config.name, "layer": f"{name}, sequence {sequence}", "phase": phase,
                     "first": found.first_cycles, "branch-and-bound": found.cycles, "bound": space.least_bound,
                     "certified": found.certified, "simulated": len(found.trials), "pruned": found.pruned,
                     "pruned by": found.cut, "seconds": seconds})
        console.print(", ".join(f"{key} {value}" for key, value in rows[-1].items()))
    begin = time.process_time()
    cycles, (reason, bound) = layer_cost(network, config, layer_mapping(optima, sequence)), layer_bound(spaces)
    rows.append({"device": config.name, "layer": f"{name}, sequence {sequence}", "phase": "all, one program",
                 "first": layer_cost(network, config, EncoderMapping(sequence=sequence, **{
                     phase: space.begin for phase, space in spaces.items()})),
                 "branch-and-bound": cycles, "bound": bound, "certified": False, "simulated": 2, "pruned": 0,
                 "pruned by": {}, "seconds": time.process_time() - begin})
    console.print(f"the layer: {cycles:,} cycles, at least {bound:,} for {reason}: {cycles / bound - 1:.2%}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--only", action="append", default=[],
                        help=f"a shape, or {LAYER}, to measure anew, where the others stay; may stand several times")
    parser.add_argument("--most", type=int, default=20000, help="mappings that exhaustive search simulates at most")
    parser.add_argument("--method", action="append", default=[], help="a search to measure anew, likewise")
    args = parser.parse_args()
    path, known, layers = args.out / "search.json", {}, []
    if (args.only or args.method) and path.exists():
        before = json.loads(path.read_text())
        known = {(row["device"], row["shape"]): row for row in before["rows"]}
        layers = before.get("layers", [])
    if not args.method and (not args.only or LAYER in args.only):
        layers = [row for preset, name, sequence in LAYERS for row in measure_layer(
            load_config(preset), name, sequence)]
    for preset, beat, size, bits, group in PROBLEMS:
        if not args.only or size in args.only:
            config = device(preset, beat)
            row = measure(config, size, bits, group, args.most, args.method or tuple(SEARCHES))
            known[config.name, size] = known.get((config.name, size), {}) | row
            console.print(", ".join(f"{name} {value}" for name, value in known[config.name, size].items()))
    rows = list(known.values())
    best = [row["exhaustive"] for row in rows]
    summary = {
        "problems": len(rows),
        "largest_gain_over_formula": max(1 - least / row["formula"] for least, row in zip(best, rows)),
        "mean_gain_over_formula": sum(1 - least / row["formula"] for least, row in zip(best, rows)) / len(rows),
        "largest_excess_over_optimum": {
            method: max(row[method] / least - 1 for least, row in zip(best, rows)) for method in SEARCHES}}
    columns = ("device", "shape", "weights", "formula", *SEARCHES, *(f"{method} seconds" for method in SEARCHES))
    show("mappings of products", [{name: row[name] for name in columns} for row in rows])
    console.print(f"the optimum takes up to {summary['largest_gain_over_formula']:.1%} fewer cycles than the formula; "
                  + ", ".join(f"{method} at most {excess:.2%} above it" for method, excess in
                              summary["largest_excess_over_optimum"].items()))
    show("fused phases of a layer", layers)
    write(path, {"command": "python benchmarks/search.py", "machine": machine(), "summary": summary, "rows": rows,
                 "layers": layers})


if __name__ == "__main__":
    main()
