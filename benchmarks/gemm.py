"""Products from DRAM and back on one device: share of the mesh's peak and of the memory roofline.

    python benchmarks/gemm.py --config base --out docs/results

Timing only: the model's cycles are those of the RTL. The last columns compare one row with many, and int4 with int8.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import console, show, write

from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.product import compile_product
from gemmule.config import Config, load_config
from gemmule.sim.roofline import roofline_cycles
from gemmule.sim.simulator import Simulator

CASES = [
    ("512x768x3072", "ws", 8, 0), ("512x768x3072", "os", 8, 0), ("512x3072x768", "ws", 8, 0),
    ("1x768x3072", "ws", 8, 0), ("16x768x3072", "ws", 8, 0), ("1x768x768", "ws", 8, 0),
    ("1x768x3072", "ws", 4, 0), ("1x768x3072", "ws", 4, 64),
]


def measure(config: Config, shape: str, dataflow: str, bits: int, group: int) -> dict[str, Any]:
    m, k, n = map(int, shape.split("x"))
    program = compile_product(config, m, k, n, weights=WeightFormat(bits, group), dataflow=dataflow)
    simulator = Simulator(config, dram_bytes=1)
    simulator.load(program.launch(shape, NO_DRAM, program.registers()))
    cycles = simulator.run(timing_only=True).cycles
    weights = f"int{bits}" + (f", scale per {group}" if group else "")
    return {"shape": shape, "dataflow": dataflow, "weights": weights, "cycles": cycles,
            "of peak MACs": program.utilization(cycles),
            "of roofline": roofline_cycles(program.roofline_bytes, config) / cycles}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    config = load_config(args.config)
    rows = [measure(config, *case) for case in CASES]
    one = next(row["cycles"] for row in rows if row["shape"] == "1x768x3072")
    for row in rows:
        row["over 1x768x3072 int8"] = row["cycles"] / one
    show(f"products on {config.name}", rows)
    write(args.out / f"gemm_{config.name}.json", {
        "command": f"python benchmarks/gemm.py --config {args.config}", "rows": rows})
    console.print("cycles are exact: RTL and model agree (gemmule fuzz, gemmule cosim gemm)")


if __name__ == "__main__":
    main()
