"""Simulation speed on one product: RTL under Verilator, the model with data, the model's timing alone.

    python benchmarks/speed.py --shape 512x768x3072 --config base --out docs/results

All sides run the same emitted program in one process, warm, interleaved; medians of ``--repeats``. The compiler of
the RTL simulator knows what a smaller product (``TRAINING``) executes (profile-guided optimisation).
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from common import console, machine, show, write

from gemmule.config import load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sw.limits import parse_shape
from gemmule.sw.workloads.programs import product

TRAINING = 64, 256, 256


def seconds(run: Any) -> tuple[float, int]:
    begin = time.perf_counter()
    cycles = run().cycles
    return time.perf_counter() - begin, cycles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="512x768x3072")
    parser.add_argument("--config", default="base")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    config = load_config(args.config)
    work = product(config, *parse_shape(args.shape), args.seed)
    simulator = Simulator(config, dram_bytes=len(work.case.dram))
    console.print(f"seed {args.seed}; building or loading the simulator")

    def train(device: RtlDevice) -> None:
        device.load(product(config, *TRAINING, args.seed).case)
        device.run()

    with RtlDevice(config, train=train) as rtl:
        simulator.load(work.case)
        rtl.load(work.case)
        sides = {
            "RTL (Verilator)": rtl.run,
            "model, with data": simulator.run,
            "model, timing only": lambda: simulator.run(timing_only=True),
        }
        for run in (simulator.run, sides["model, timing only"]):
            run()  # compiles or loads the engine
        times: dict[str, list[float]] = {name: [] for name in sides}
        cycles: set[int] = set()
        for _ in range(args.repeats):
            for name, run in sides.items():
                taken, count = seconds(run)
                times[name].append(taken)
                cycles.add(count)
    if len(cycles) != 1:
        raise SystemExit(f"the sides disagree on cycles: {sorted(cycles)}")
    total = cycles.pop()
    median = {name: statistics.median(values) for name, values in times.items()}
    slowest = median["RTL (Verilator)"]
    rows = [{
        "side": name, "median seconds": value, "cycles per second": round(total / value),
        "over RTL": slowest / value,
    } for name, value in median.items()]
    show(f"{args.shape} on {config.name}: {total:,} cycles, median of {args.repeats}", rows)
    write(args.out / f"speed_{config.name}.json", {
        "command": f"python benchmarks/speed.py --shape {args.shape} --config {args.config} --repeats {args.repeats}",
        "machine": machine(), "shape": args.shape, "cycles": total, "rows": rows, "seconds": times,
    })


if __name__ == "__main__":
    main()
