"""GPT-2 by shape on `base`: cycles of decode and prefill passes against the roofline, and the compiler's time.

    python -m benchmarks.gpt2 --out docs/results

Weights are not needed: only time is simulated. The roofline comes from the network (`compiler/ideal.py`), not from the
program. Passes of several rows, and of a batch of sequences, are compared with one row of the program for one row.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from gemmule import __version__
from gemmule.compiler.compile import compile_network
from gemmule.compiler.ideal import ideal
from gemmule.config import load_config
from gemmule.io.files import write_atomically
from gemmule.sim.roofline import roofline_cycles
from gemmule.sw.workloads.passes import Passes
from tests.compiler.integer_networks import Sizes, random_network

SIZES = Sizes(family="gpt2", hidden=768, inner=3072, layers=12, heads=12, kv_heads=12, head_dim=64, vocab=50257,
              positions=1024)
PROGRAMS = ((1, 1, 1024), (8, 1, 1024), (16, 1, 1024), (1, 8, 1024))
"""(rows, sequences, most positions) of each program."""
CONTEXTS = (0, 64, 512, 960)
REPEATS = 5


def measure() -> dict[str, Any]:
    """Every program and pass."""
    config, net = load_config("base"), random_network(SIZES, 1, weights=False)
    programs, passes = [], []
    for rows, batch, most in PROGRAMS:
        begin = time.perf_counter()
        program = compile_network(net, config, rows=rows, batch=batch, context=most, tokens=True)
        programs.append({
            "rows": rows, "batch": batch, "positions": most, "commands": len(program.commands),
            "bytes": len(program.image), "compile_seconds": time.perf_counter() - begin,
            "scores": program.scores})
        for count in sorted({1, 8, 16, rows} & set(range(1, rows + 1))):
            for context in CONTEXTS:
                seconds = []
                for _ in range(REPEATS):
                    with Passes(program, net, "model", 0, True) as run:
                        run.fill_cache(context)
                        begin = time.perf_counter()
                        run.run(count, count)
                        seconds.append(time.perf_counter() - begin)
                needed = ideal(net.graph, count, context, wanted=count, tokens=True, batch=batch)
                passes.append({
                    "program": rows, "rows": count, "batch": batch, "context": context, "cycles": run.cycles,
                    "roofline_fraction": roofline_cycles(needed.bytes, config) / run.cycles,
                    "simulation_seconds": float(np.median(seconds))})
                print(passes[-1], flush=True)
    one = {p["context"]: p["cycles"] for p in passes if p["program"] == p["batch"] == 1}
    for p in passes:
        p["of_one_row"] = p["cycles"] / one[p["context"]]
    return {"schema": "gemmule/benchmark-gpt2/1", "version": __version__, "config": "base",
            "config_sha256": config.sha256, "programs": programs, "passes": passes}


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    record = measure()
    for program in record["programs"]:
        print(program)
    write_atomically(parser.parse_args().out / "gpt2.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
