"""Known architectures by shape: decode steps against the roofline, what int4 saves, and how quick and small it all is.

    python -m benchmarks.architectures --out docs/results

GPT-2 and OPT-1.3B on `base`, Llama-2-7B on examples/configs/large/wide.yaml (64 x 64, 64 bytes a cycle). Seconds are
the quickest of several runs of one process, whose memory at its most is told.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from pathlib import Path
from typing import Any

from gemmule import __version__
from gemmule.compiler.importers.architectures import architecture
from gemmule.config import load_config
from gemmule.io.files import write_atomically
from gemmule.sw.workloads.architectures import Work, run_architecture

WIDE = "examples/configs/large/wide.yaml"
RUNS = (("gpt2", "base", "int8", 0, 128), ("gpt2", "base", "int8", 0, 512), ("gpt2", "base", "int4", 32, 128),
        ("gpt2", "base", "int4", 32, 512), ("gpt2", "base", "int4", 128, 128), ("gpt2", "base", "int4", 128, 512),
        ("opt-1.3b", "base", "int8", 0, 512), ("llama-2-7b", WIDE, "int8", 0, 128),
        ("llama-2-7b", WIDE, "int8", 0, 512), ("llama-2-7b", WIDE, "int4", 64, 512))
"""(architecture, configuration, weights with the logits', rows that share an int4 scale, cached positions)."""
REPEATS = 9
KEPT = ("architecture", "config", "bits", "group", "seq", "cycles", "milliseconds", "tokens_per_second",
        "roofline_fraction", "network_bytes", "program_bytes", "commands", "simulation_seconds", "compile_seconds")
PER_SECOND = {"277 at 1,935 GB/s": 277 * 64 / 1935, "16 at 100 GB/s": 16 * 64 / 100}
"""Published tokens per second of Llama-2-7B scaled to 64 GB/s."""


def measure() -> dict[str, Any]:
    """Every run."""
    runs = []
    for name, config, bits, group, seq in RUNS:
        work = Work(seq=seq, bits=bits, head_bits=bits, group=group)
        device = load_config(config)
        found = [run_architecture(architecture(name), device, work) for _ in range(REPEATS)]
        quickest = min(run["simulation_seconds"] for run in found)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        record = found[0] | {"config": device.name, "simulation_seconds": quickest, "memory_mib": memory}
        runs.append({key: record[key] for key in (*KEPT, "memory_mib")})
        print(runs[-1], flush=True)
    gpt2 = {(run["group"], run["seq"]): run["cycles"] for run in runs if run["architecture"] == "gpt2"}
    ratios = {group: {seq: gpt2[group, seq] / gpt2[0, seq] for seq in (128, 512)} for group in (32, 128)}
    return {"schema": "gemmule/benchmark-architectures/1", "version": __version__, "load": os.getloadavg()[0],
            "repeats": REPEATS, "runs": runs, "int4_over_int8": ratios, "published_tokens_per_second": PER_SECOND}


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    record = measure()
    write_atomically(args.out / "architectures.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
