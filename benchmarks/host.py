"""What softmax, LayerNorm, GELU, additions and (de)quantisation take a host: the numbers of sw/workloads/host_model.py.

    python benchmarks/host.py --out docs/results

Instructions an element on RV64GC are counted one by one under qemu (packages gcc-riscv64-linux-gnu,
libc6-dev-riscv64-cross and qemu-user of Debian): an in-order core that issues one a cycle takes at least as many
cycles. Cycles on the processor that this runs on are processor time at the rate that /proc/cpuinfo tells.
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

from common import machine, show, write

SOURCE = Path(__file__).with_name("host_kernels.c")
KERNELS = {"dequantise": 768, "quantise": 768, "softmax": 512, "layernorm": 768, "gelu": 768, "add": 768}
"""And the row that it reduces over, as of BERT-base at 512."""
FLAGS = ["-O3", "-ffast-math"]
RISCV = ["riscv64-linux-gnu-gcc", *FLAGS, "-march=rv64gc", "-mtune=rocket", "-static"]
NATIVE = ["gcc", *FLAGS, "-march=native"]


def instructions(program: Path, kernel: str, row: int) -> float:
    """RV64GC instructions an element, library calls included."""
    elements, counts = 4 * row, []
    for repeats in (1, 3):
        run = subprocess.run(
            ["qemu-riscv64", "-singlestep", "-d", "exec,nochain", "-D", f"{program}.log", program, kernel,
             str(elements), str(row), str(repeats)], check=True, capture_output=True)
        assert run.stderr
        with open(f"{program}.log", "rb") as log:
            counts.append(sum(line.startswith(b"Trace") for line in log))
    return (counts[1] - counts[0]) / 2 / elements


def nanoseconds(program: Path, kernel: str, row: int, runs: int) -> float:
    """Processor time an element here, the data in the second-level cache."""
    elements, repeats = 128 * row, 4000

    def spent(repeats: int) -> float:
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([program, kernel, str(elements), str(row), str(repeats)], check=True, capture_output=True)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin

    return statistics.median(spent(repeats) - spent(0) for _ in range(runs)) / repeats / elements * 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    rates = re.findall(r"^cpu MHz\s*: ([0-9.]+)", Path("/proc/cpuinfo").read_text(), re.M)
    ghz, rows = float(rates[0]) / 1000, []
    with tempfile.TemporaryDirectory() as folder:
        riscv, native = Path(folder, "riscv"), Path(folder, "native")
        for compiler, program in ((RISCV, riscv), (NATIVE, native)):
            subprocess.run([*compiler, "-o", program, SOURCE, "-lm"], check=True)
        for kernel, row in KERNELS.items():
            took = nanoseconds(native, kernel, row, args.runs)
            rows.append({"kernel": kernel, "rv64gc_instructions": round(instructions(riscv, kernel, row), 2),
                         "nanoseconds_here": round(took, 4), "cycles_here": round(took * ghz, 3)})
    compilers = {name[0]: subprocess.run([name[0], "--version"], check=True, capture_output=True, text=True)
                 .stdout.splitlines()[0] for name in (RISCV, NATIVE, ["qemu-riscv64"])}
    show("an element of", rows)
    write(args.out / "host.json", {
        "command": f"python benchmarks/host.py --runs {args.runs}", "machine": machine() | {"ghz": ghz},
        "tools": compilers, "flags": {"riscv": RISCV[1:], "native": NATIVE[1:]}, "rows": rows})


if __name__ == "__main__":
    main()
