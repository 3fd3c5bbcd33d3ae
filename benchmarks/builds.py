"""Speed of the RTL under Verilator, in two builds side by side.

    python benchmarks/builds.py --shape 128x256x768 --config base --out docs/results

- ``in groups``: groups of statements run when something that they read has changed (``gemmule.sim.rtl.activity``),
  repeated bits are replications, and the clock is in the simulator's loop. Tests and the fuzzer use it.
- ``every statement``: Verilator's own code in every cycle, Yosys's own text, cocotb's clock.

Both run the same program in turns, untrained. Cycles, counters and bytes must be equal. Time is processor time of the
simulator, because other programs may run; what they do to the caches still tells, so compare the rows of one run only.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from common import console, machine, show, write

from gemmule.config import load_config
from gemmule.hw.flow.verilog import TOP, UNITS, verilog_of
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sw.limits import parse_shape
from gemmule.sw.workloads.programs import product

GROUPS, EVERY = "in groups", "every statement"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="128x256x768")
    parser.add_argument("--config", default="base")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    config = load_config(args.config)
    case = product(config, *parse_shape(args.shape), args.seed).case
    console.print(f"seed {args.seed}; building or loading the simulators")
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / f"{TOP}.sv"
        plain.write_text(verilog_of(UNITS[TOP](config, None), TOP).text, encoding="utf-8")
        with RtlDevice(config) as groups, RtlDevice(config, verilog=plain, gated=False) as every:
            sides = {GROUPS: groups, EVERY: every}
            times: dict[str, list[float]] = {name: [] for name in sides}
            for device in sides.values():
                device.load(case)
            results = {}
            for _ in range(args.repeats):
                for name, device in sides.items():
                    begin = device.processor_seconds()
                    results[name] = device.run()
                    times[name].append(device.processor_seconds() - begin)
            seen = {(result.cycles, repr(result.registers), sides[name].read_dram(0, len(case.dram)))
                    for name, result in results.items()}
    if len(seen) != 1:
        raise SystemExit("the builds disagree")
    cycles = results[GROUPS].cycles
    median = {name: statistics.median(values) for name, values in times.items()}
    rows = [{
        "build": name, "median processor seconds": value, "cycles per second": round(cycles / value),
        "times as fast": median[EVERY] / value,
    } for name, value in median.items()]
    show(f"{args.shape} on {config.name}: {cycles:,} cycles, median of {args.repeats}", rows)
    write(args.out / f"builds_{config.name}.json", {
        "command": f"python benchmarks/builds.py --shape {args.shape} --config {args.config} --repeats {args.repeats}",
        "machine": machine(), "clock": "processor time of the simulator", "shape": args.shape, "cycles": cycles,
        "rows": rows, "seconds": times,
    })


if __name__ == "__main__":
    main()
