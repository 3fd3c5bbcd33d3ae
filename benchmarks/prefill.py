"""Prompts by programs of their own: cycles by rows of a launch, and what they make of speed-ups.

    python benchmarks/prefill.py --out docs/results/prefill.json

By time alone, both models of a pair: whole prompts without answers, host counted, by the program that decodes and by
prefills beside it of twice its rows and so on. Then held-out prompts, the first of each kind and none left out, decoded
with prompts both ways: completions by drafting, copies by prompt lookup, both beside autoregressive decoding whose
prompt goes the same way; values by the interpreter, whose cycles are the device's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from common import show, write

from gemmule.compiler.errors import CompileError
from gemmule.compiler.search.cost import prompt_cycles
from gemmule.compiler.search.decoder import default_effort
from gemmule.compiler.search.prefill import best_prefill
from gemmule.config import load_config
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.session import Session
from gemmule.sw.limits import DEFAULT, MODELS
from gemmule.sw.models.pair import Pair, bundled_pair
from gemmule.sw.prompts.categories import load_categories

LENGTHS = (32, 100, 200, 400)
"""Rows of prompts."""
ROWS = (16, 32, 64, 128)
"""Of the launches of a prefill."""
MOST_PROMPT = 96
"""Tokens of a prompt to complete, as `gemmule bench` has it."""
DRAFTS = {"draft": 3, "pld": None}
"""Tokens drafted a step; None: as the method has it."""


def prompts(args: argparse.Namespace, pair: Pair) -> Iterator[dict[str, Any]]:
    """One row for each model and number of rows."""
    config = load_config(args.config)
    for role, place in (("target", pair.target), ("draft", pair.draft)):
        if place is None:
            continue
        placed = place(config, 0)
        program, lengths = placed.program, [n for n in LENGTHS if n < placed.program.max_positions]
        yield {"model": role, "rows": program.max_rows, "program": "decoding"} | {
            f"{n} tokens": prompt_cycles(program, n) for n in lengths}
        for rows in (rows for rows in ROWS if rows > program.max_rows):
            try:
                made = best_prefill(placed.network, program, effort=default_effort(program.graph), rows=rows,
                                    base_address=1 << 26)
            except CompileError as error:
                yield {"model": role, "rows": rows, "program": f"none: {error}"}
                continue
            assert made is not None
            yield {"model": role, "rows": rows, "program": "prefill"} | {
                f"{n} tokens": prompt_cycles(made, n) for n in lengths}


def runs(args: argparse.Namespace, pair: Pair) -> Iterator[dict[str, Any]]:
    """Of each prompt one row for each way of prefill."""
    config = load_config(args.config)
    known, room = load_categories(), pair.positions - args.max_new_tokens
    texts = {"draft": [pair.encode(prompt.text)[:MOST_PROMPT] for prompt in known["completion"][:args.completions]],
             "pld": [pair.encode(prompt.text)[:room] for prompt in known["copy"][:args.copies]]}
    for prefill in (0, None):
        with Session(config, pair=pair, interpreted=True, prefill=prefill) as session:
            rows = [model.prefill.max_rows if model and model.prefill else 0
                    for model in (session.target, session.draft)]
            for method, mine in texts.items():
                for number, ids in enumerate(mine):
                    ar, run = (session.generate(name, ids, args.max_new_tokens, drafts, pair.ends)
                               for name, drafts in (("ar", None), (method, DRAFTS[method])))
                    yield _row(method, number, len(ids), rows, run, ar)


def _row(method: str, number: int, tokens: int, rows: list[int], run: Generation, ar: Generation) -> dict[str, Any]:
    return {
        "method": method, "prompt": number, "prompt_tokens": tokens, "target_rows": rows[0], "draft_rows": rows[1],
        "equal": run.tokens == ar.tokens, "new_tokens": len(run.tokens), "prefill_cycles": run.prefill.cycles,
        "cycles": run.ledger.cycles, "ar_prefill_cycles": ar.prefill.cycles, "ar_cycles": ar.ledger.cycles,
        "speedup": ar.ledger.cycles / run.ledger.cycles}


def means(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Of all prompts of a method, by way of prefill."""
    for method, rows in sorted({(row["method"], row["target_rows"]) for row in found}):
        mine = [row for row in found if (row["method"], row["target_rows"]) == (method, rows)]
        yield {"method": method, "target_rows": rows, "draft_rows": mine[0]["draft_rows"], "prompts": len(mine),
               "equal": sum(row["equal"] for row in mine)} | {
            name: mean(row[name] for row in mine)
            for name in ("prompt_tokens", "prefill_cycles", "cycles", "ar_prefill_cycles", "ar_cycles", "speedup")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--model", choices=MODELS, default=DEFAULT)
    parser.add_argument("--completions", type=int, default=5)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    pair = bundled_pair(args.model)
    by_rows = list(prompts(args, pair))
    show(f"{args.model} pair on {args.config}: cycles of prompts", by_rows)
    found = list(runs(args, pair))
    show(f"{args.max_new_tokens} new tokens", [row | {"speedup": round(row["speedup"], 3)} for row in found])
    told = list(means(found))
    show("means", [{name: value if isinstance(value, str) else round(value, 3) for name, value in row.items()}
                   for row in told])
    if args.out:
        write(args.out, {"command": f"python benchmarks/prefill.py --config {args.config} --model {args.model} "
                                    f"--completions {args.completions} --copies {args.copies} --max-new-tokens "
                                    f"{args.max_new_tokens}", "prompts": by_rows, "runs": found, "means": told})


if __name__ == "__main__":
    main()
