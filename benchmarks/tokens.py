"""How fast the tool itself generates: tokens a second by method, and how soon the first one is shown.

    python benchmarks/tokens.py --runs 5 --out docs/results

Whole processes of `gemmule generate`, compiled code and programs in the cache; the best of several runs, turn and turn
about. *wall*: tokens by the seconds of the decoding loop, the prompt's passes included. *processor*: tokens behind the
first by the processor time that they add to a run of one token, so that other load on the machine counts less.
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
from typing import Any

from common import machine, show, write

PROMPT = "def area(width, height):"
METHODS = {"ar": [], "draft": ["--no-baseline"]}


def run(method: str, tokens: int, config: str) -> dict[str, float]:
    """One process: seconds to the first token and to the end, of the loop and of the processor; tokens."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "run.json")
        used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "gemmule", "generate", "--method", method, "--config", config, "--prompt", PROMPT,
             "--stream", "--max-new-tokens", str(tokens), "--json", str(record), *METHODS[method]],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        seen, first = b"", 0.0
        while piece := process.stdout.read1():  # type: ignore[attr-defined]
            seen += piece
            if not first and seen.partition(PROMPT.encode())[2]:
                first = time.perf_counter() - begin
        if process.wait():
            raise SystemExit(f"gemmule generate --method {method} ended with code {process.returncode}")
        whole, now = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        found: dict[str, Any] = json.loads(record.read_text())
    return {"first": first, "whole": whole, "loop": found["simulation_seconds"], "tokens": len(found["tokens"]),
            "processor": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
    heads: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
    for method in METHODS:
        run(method, 2, args.config)  # compiles what is not in the cache
    for _ in range(args.runs):
        for method in METHODS:
            heads[method].append(run(method, 1, args.config))
            runs[method].append(run(method, args.tokens, args.config))
    rows = []
    for method, found in runs.items():
        head = min(one["processor"] for one in heads[method])
        added = min(one["processor"] for one in found) - head
        rows.append({
            "method": method, "tokens": int(found[0]["tokens"]),
            "tokens a second, wall": round(max(one["tokens"] / one["loop"] for one in found), 1),
            "tokens a second, processor": round((found[0]["tokens"] - 1) / added, 1),
            "seconds to the first token": round(min(one["first"] for one in found), 2),
            "processor seconds of one token": round(head, 2)})
    show(f"generate on {args.config}, best of {args.runs}", rows)
    write(args.out / f"tokens_{args.config}.json", {
        "command": f"python benchmarks/tokens.py --config {args.config} --tokens {args.tokens} --runs {args.runs}",
        "machine": machine(), "rows": rows, "runs": runs, "one token": heads})


if __name__ == "__main__":
    main()
