"""Speed of the model's timing alone: a compute-bound product, a memory-bound one, a decoding pass.

    python benchmarks/timing.py --config base --out docs/results

Each launch is simulated warm, ``--repeats`` times, turn and turn about; medians. The decoding pass is one token of the
bundled target at context 128; its time is that of a launch, Python included.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from common import console, machine, show, write

from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.session import Session
from gemmule.sw.limits import parse_shape
from gemmule.sw.workloads.programs import product

CONTEXT = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--shapes", nargs="*", default=["512x768x3072", "1x4096x20480"])
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    config = load_config(args.config)
    console.print(f"seed {args.seed}")
    sides: dict[str, Any] = {}
    for shape in args.shapes:
        case = product(config, *parse_shape(shape), args.seed).case
        simulator = Simulator(config, dram_bytes=len(case.dram))
        simulator.load(case)
        sides[shape] = simulator
    target = Session(config).target
    target.forward(Rows.chain([2], CONTEXT))  # leaves its launch on the device
    sides[f"decode, context {CONTEXT}"] = target.device
    results = {name: simulator.run(timing_only=True) for name, simulator in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.repeats):
        for name, simulator in sides.items():
            begin = time.perf_counter()
            simulator.run(timing_only=True)
            times[name].append(time.perf_counter() - begin)
    rows = [{
        "launch": name, "commands": len(result.units), "bursts": sum(result.dram_bursts.values()),
        "cycles": result.cycles, "microseconds": statistics.median(times[name]) * 1e6,
        "million cycles a second": round(result.cycles / statistics.median(times[name]) / 1e6),
    } for name, result in results.items()]
    show(f"timing only on {config.name}, median of {args.repeats}", rows)
    write(args.out / f"timing_{config.name}.json", {
        "command": f"python benchmarks/timing.py --config {args.config} --shapes {' '.join(args.shapes)} "
                   f"--repeats {args.repeats}",
        "machine": machine(), "rows": rows, "seconds": times,
    })


if __name__ == "__main__":
    main()
