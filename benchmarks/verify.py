"""Commands per second of the static verifier on compiled and random programs, median of several runs.

    python benchmarks/verify.py --out docs/results
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from common import console, machine, write
from rich.table import Table

from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.product import compile_product
from gemmule.config import load_config
from gemmule.isa import COMMAND_BYTES
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.launch import Launch
from gemmule.sim.verify.verify import verify
from gemmule.sw.workloads.programs import decode_launch

RUNS = 15


def measure(launch: Launch, config_name: str) -> tuple[int, float, float]:
    """Commands, and median and best commands per second over whole calls of ``verify``."""
    config, count = load_config(config_name), len(launch.image) // COMMAND_BYTES
    seconds = []
    for _ in range(RUNS + 1):
        begin = time.perf_counter()
        verify(launch.image, config, launch.bases, launch.limits, launch.lengths, launch.program)
        seconds.append(time.perf_counter() - begin)
    return count, count / statistics.median(seconds[1:]), count / min(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    base = load_config("base")
    launches = {
        "pass of the bundled target, 4 rows": (decode_launch("target", base, 4, 32, 0), "base"),
        "random, tiny, 1,000 commands": (generate(load_config("tiny"), 1, 1000), "tiny"),
        "random, base, 1,000 commands": (generate(base, 1, 1000), "base"),
    }
    for m, k, n in ((512, 768, 3072), (2048, 3072, 768)):
        program = compile_product(base, m, k, n)
        launches[f"product {m}x{k}x{n}"] = (program.launch("gemm", NO_DRAM, program.registers()), "base")
    table = Table("program", "commands", "commands per second, median", "best", box=None, pad_edge=False)
    record = {}
    for name, (launch, config_name) in launches.items():
        count, median, best = measure(launch, config_name)
        record[name] = {"commands": count, "commands_per_second": round(median), "best": round(best), "runs": RUNS}
        table.add_row(name, f"{count:,}", f"{median:,.0f}", f"{best:,.0f}")
    console.print(table)
    if arguments.out:
        write(arguments.out / "verify.json", {"machine": machine(), "programs": record})


if __name__ == "__main__":
    main()
