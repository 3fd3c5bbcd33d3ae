"""Speculative against autoregressive decoding on held-out text: equal tokens, and what drafting gains.

    python benchmarks/lossless.py --out docs/results/lossless.json

The prompts are those of ``sw/prompts/completion.json``, cut to 96 tokens. Speed-up is cycles of autoregressive decoding
over cycles of drafting, prefill and host counted on both sides. A text loops where less than half of its 4-grams are
distinct.
Runs resume: finished prompts are kept in the output file. Exit code 1 when any token differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from common import console, show, write
from rich.progress import track

from gemmule.config import load_config
from gemmule.sw.decoding.generation import LOOPING
from gemmule.sw.decoding.session import Session
from gemmule.sw.models.bundled_models import MODELS, encode
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.prompts.choose import Prompt, load
from gemmule.sw.reports.terminal import generation_json

PROMPT_TOKENS = 96


def measure(session: Session, prompt: Prompt, new_tokens: int, lengths: list[int]) -> dict[str, Any]:
    """One prompt: autoregressive, then every draft length."""
    ids = encode(prompt.text)[:PROMPT_TOKENS]
    ar = session.generate("ar", ids, new_tokens)
    row: dict[str, Any] = {
        "prompt": prompt.name, "kind": prompt.kind, "prompt_tokens": len(ids), "new_tokens": len(ar.tokens),
        "distinct_4grams": generation_json(ar, None, bundled_pair())["distinct_4grams"]}
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


def summary(rows: list[dict[str, Any]], length: int) -> dict[str, Any]:
    """What a draft length did over all prompts; every number is a mean over prompts where it says nothing else."""
    cells = [row[str(length)] for row in rows]
    gains = [cell["speedup"] for cell in cells]
    distinct = [row["distinct_4grams"] for row in rows]
    parts = {
        "looping": [gain for gain, share in zip(gains, distinct) if share < LOOPING],
        "not looping": [gain for gain, share in zip(gains, distinct) if share >= LOOPING],
    } | {kind: [gain for gain, row in zip(gains, rows) if row["kind"] == kind] for kind in
         ("beginning", "definition", "middle")}
    varied = len(set(gains)) > 1 and len(set(distinct)) > 1
    return {
        "draft_length": length, "prompts": len(cells), "equal": sum(cell["equal"] for cell in cells),
        "steps": {kind: sum(cell[kind] for cell in cells) for kind in ("none", "some", "all")},
        "mean": statistics.mean(gains), "median": statistics.median(gains), "min": min(gains), "max": max(gains),
        "slower": sum(gain < 1 for gain in gains),
        "tokens_per_step": statistics.mean(cell["tokens_per_step"] for cell in cells),
        "acceptance": statistics.mean(cell["acceptance"] for cell in cells),
        "correlation_with_distinct_4grams": statistics.correlation(distinct, gains) if varied else None,
        "parts": {name: {"prompts": len(part), "mean": statistics.mean(part), "min": min(part), "max": max(part)}
                  for name, part in parts.items() if part},
    }


def print_summaries(title: str, found: list[dict[str, Any]], distinct: list[float]) -> None:
    """The tables."""
    show(title, [{
        "drafts": s["draft_length"], "equal": f"{s['equal']} of {s['prompts']}", "mean": f"{s['mean']:.2f}x",
        "median": f"{s['median']:.2f}x", "least": f"{s['min']:.2f}x", "most": f"{s['max']:.2f}x",
        "slower": f"{s['slower'] / s['prompts']:.0%}", "tokens a step": f"{s['tokens_per_step']:.2f}",
        "acceptance": f"{s['acceptance']:.1%}"} for s in found])
    console.print(
        f"distinct 4-grams: median {statistics.median(distinct):.0%}, {min(distinct):.0%} to {max(distinct):.0%}")
    show("mean speed-up by kind of text (prompts); correlation with the share of distinct 4-grams", [
        {"drafts": s["draft_length"]}
        | {name: f"{part['mean']:.2f}x ({part['prompts']})" for name, part in s["parts"].items()}
        | {"correlation": "-" if s["correlation_with_distinct_4grams"] is None
           else f"{s['correlation_with_distinct_4grams']:.2f}"} for s in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--prompts", type=int, default=50, help="the first so many")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--lengths", default="1,2,3,5,7", help="drafted tokens a step")
    parser.add_argument("--out", type=Path, default=Path("build/lossless.json"))
    args = parser.parse_args()
    lengths = [int(n) for n in args.lengths.split(",")]
    texts, prompts = load()
    config = load_config(args.config)
    conditions = {
        "config": config.name, "configuration": config.model_dump(), "new_tokens": args.new_tokens,
        "prompt_tokens_at_most": PROMPT_TOKENS, "lengths": lengths,
        "prompts": {"file": "sw/prompts/completion.json", "python": texts["python"], "sha256": texts["sha256"]},
        "models": {name: hashlib.sha256((MODELS / "small" / f"{name}.safetensors").read_bytes()).hexdigest()
                   for name in ("target", "draft")},
    }
    rows: list[dict[str, Any]] = []
    if args.out.is_file():
        previous = json.loads(args.out.read_text())
        if previous["conditions"] == conditions:
            rows = previous["rows"]
    done = {row["prompt"] for row in rows}
    session = Session(config)
    for prompt in track(prompts[:args.prompts], console=console, disable=not console.is_terminal):
        if prompt.name not in done:
            rows.append(measure(session, prompt, args.new_tokens, lengths))
            write(args.out, {"conditions": conditions, "summaries": [summary(rows, n) for n in lengths], "rows": rows})
    found = [summary(rows, length) for length in lengths]
    console.print(f"prompts: held-out files of Python {texts['python']}, sha256 {texts['sha256']}")
    print_summaries(f"draft against ar on {config.name}, {args.new_tokens} new tokens", found,
                    [row["distinct_4grams"] for row in rows])
    kinds = {kind: sum(s["steps"][kind] for s in found) for kind in ("none", "some", "all")}
    if any(s["equal"] != s["prompts"] for s in found) or min(kinds.values()) == 0:
        console.print(f"FAILED: equal {[s['equal'] for s in found]} of {len(rows)}, steps {kinds}")
        sys.exit(1)


if __name__ == "__main__":
    main()
