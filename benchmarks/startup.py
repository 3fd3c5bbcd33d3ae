"""How long the help takes: wall time from the start of the interpreter to its end, and what was loaded.

    python benchmarks/startup.py --runs 9 --out docs/results
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import show, write

COMMANDS = (["--help"], ["--version"], ["generate", "--help"], ["run", "gemm", "--help"], ["cosim", "--help"],
            ["verilog", "--help"], ["synth", "--help"])


def seconds(arguments: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "gemmule", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    rows = []
    for arguments in COMMANDS:
        seconds(arguments)  # files into the cache of the system
        times = [seconds(arguments) for _ in range(args.runs)]
        rows.append({"command": " ".join(["gemmule", *arguments]), "median seconds": round(statistics.median(times), 3),
                     "least": round(min(times), 3), "most": round(max(times), 3)})
    show("warm start", rows)
    write(args.out / "startup.json", {"command": f"python benchmarks/startup.py --runs {args.runs}", "rows": rows})


if __name__ == "__main__":
    main()
