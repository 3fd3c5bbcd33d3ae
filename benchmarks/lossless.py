"""Token equality of speculative and autoregressive decoding: prompts x draft lengths.

    python benchmarks/lossless.py --prompts 50 --new-tokens 64 --out docs/results/lossless.json

Runs resume: finished prompts are kept in the output file. Exit code 1 when any token differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from common import console, prompts, show, write
from rich.progress import track

from gemmule.config import load_config
from gemmule.sw.session import Session
from gemmule.sw.text import encode


def measure(session: Session, name: str, text: str, new_tokens: int, lengths: list[int]) -> dict[str, Any]:
    """One prompt: autoregressive, then every draft length."""
    ids = encode(text)[:96]
    ar = session.generate("ar", ids, new_tokens)
    row: dict[str, Any] = {"prompt": name, "prompt_tokens": len(ids), "new_tokens": len(ar.tokens)}
    for length in lengths:
        run = session.generate("draft", ids, new_tokens, length)
        steps = [(d, a) for d, a in run.steps if d]
        row[str(length)] = {
            "equal": run.tokens == ar.tokens,
            "none": sum(a == 0 for _, a in steps),
            "some": sum(0 < a < d for d, a in steps),
            "all": sum(a == d for d, a in steps),
            "tokens_per_step": run.tokens_per_step, "acceptance": run.acceptance,
            "speedup": ar.ledger.cycles / run.ledger.cycles,
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--lengths", default="1,3,7")
    parser.add_argument("--out", type=Path, default=Path("build/lossless.json"))
    args = parser.parse_args()
    lengths = [int(n) for n in args.lengths.split(",")]
    header = {"config": args.config, "new_tokens": args.new_tokens, "lengths": lengths}
    rows: list[dict[str, Any]] = []
    if args.out.is_file():
        previous = json.loads(args.out.read_text())
        if previous["conditions"] == header:
            rows = previous["rows"]
    done = {row["prompt"] for row in rows}
    session = Session(load_config(args.config))
    for name, text in track(prompts(args.prompts), console=console, disable=not console.is_terminal):
        if name not in done:
            rows.append(measure(session, name, text, args.new_tokens, lengths))
            write(args.out, {"conditions": header, "rows": rows})
    table = []
    for length in lengths:
        cells = [row[str(length)] for row in rows]
        table.append({
            "draft length": length, "prompts": len(cells), "equal": sum(c["equal"] for c in cells),
            "steps none accepted": sum(c["none"] for c in cells),
            "some": sum(c["some"] for c in cells), "all": sum(c["all"] for c in cells),
            "tokens per step": sum(c["tokens_per_step"] for c in cells) / len(cells),
            "mean speed-up": sum(c["speedup"] for c in cells) / len(cells),
        })
    show(f"draft = ar on {args.config}, {args.new_tokens} new tokens", table)
    kinds = {kind: sum(row[str(n)][kind] for row in rows for n in lengths) for kind in ("none", "some", "all")}
    equal = all(row[str(n)]["equal"] for row in rows for n in lengths)
    if not equal or min(kinds.values()) == 0:
        console.print(f"FAILED: equal {equal}, steps {kinds}")
        sys.exit(1)


if __name__ == "__main__":
    main()
