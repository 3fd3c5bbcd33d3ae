"""Adaptive verification beside every fixed number of candidates, and trees of a draft model beside its chains.

    python benchmarks/adaptive.py --out docs/results/adaptive.json --resume build/adaptive.jsonl

Held-out prompts of the default pair, the first ones of each category, none left out, and prompts of random tokens: a
trap, where nothing stands that could be looked up. Each is decoded by each method with every number of candidates that
a pass takes, and with as many as pay. The oracle has, of each prompt, the best of those numbers or none, known only
afterwards.
Prompts and host are counted; values by the interpreter.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from common import show, write

from gemmule.config import load_config
from gemmule.io.progress import counting
from gemmule.sw.benches.finished import Finished
from gemmule.sw.decoding.generation import Generation, loops
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import Session
from gemmule.sw.limits import CATEGORIES, DEFAULT, MODELS
from gemmule.sw.models.pair import Pair, bundled_pair
from gemmule.sw.prompts.categories import load_categories

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "draft": ("draft", {}), "draft-tree": ("draft-tree", {}),
    "draft-tree, static": ("draft-tree", {"draft_tree_form": "static"}), "pld": ("pld", {}), "chooser": ("chooser", {})}
"""By name: a method and its options."""
TRAP = "random tokens"
LONGEST = (5, 40, 100)
"""Of prompts of random tokens."""
MOST_PROMPT = 96
"""Tokens of a completion's prompt, as `gemmule bench` has it."""


def prompts_of(pair: Pair, vocabulary: int, count: int) -> list[tuple[str, list[int]]]:
    """By category, the trap last."""
    known, random = load_categories(), Random(0)
    found = [(name, pair.encode(prompt.text)[:MOST_PROMPT if name == "completion" else None])
             for name in CATEGORIES for prompt in known[name][:count]]
    return found + [(TRAP, [random.randrange(vocabulary) for _ in range(LONGEST[i % len(LONGEST)])])
                    for i in range(count)]


def measured(session: Session, ids: list[int], new_tokens: int, ends: frozenset[int]) -> list[dict[str, Any]]:
    """Cycles of a prompt by each way and number; ``adaptive`` where as many as pay are taken."""
    most = session.target.program.max_rows - 1
    reference = session.generate("ar", ids, new_tokens, stop=ends)

    def row(way: str, number: int | str, run: Generation) -> dict[str, Any]:
        return {"way": way, "number": number, "cycles": run.ledger.cycles, "prompt_cycles": run.prefill.cycles,
                "equal": run.tokens == reference.tokens, "tokens": len(run.tokens), "steps": len(run.steps),
                "drafted": run.drafted, "looping": loops(run.tokens)}

    found = [row("ar", 0, reference)]
    for way, (method, options) in WAYS.items():
        for number in range(1, most + 1):
            found.append(row(way, number, session.generate(method, ids, new_tokens, number, ends, options=options)))
        found.append(row(way, "adaptive", session.generate(method, ids, new_tokens, most, ends, options=options,
                                                           adaptive=True)))
    return found


def table(results: Sequence[tuple[str, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """One row for each way: speed-ups over autoregressive decoding, means over prompts, and the worst prompt's."""
    made = []
    for way in WAYS:
        gains: dict[int | str, list[float]] = {}
        oracle, looping = [], []
        for _, rows in results:
            plain = rows[0]["cycles"]
            mine = {row["number"]: plain / row["cycles"] for row in rows if row["way"] == way}
            for number, gain in mine.items():
                gains.setdefault(number, []).append(gain)
            oracle.append(max(1.0, *(gain for number, gain in mine.items() if number != "adaptive")))
            looping.append(rows[0]["looping"])
        adaptive, fixed = gains["adaptive"], {number: mean(mine) for number, mine in gains.items()
                                              if number != "adaptive"}
        best = max(fixed, key=fixed.__getitem__)

        def apart(values: Sequence[float], loop: Sequence[bool] = tuple(looping)) -> float | None:
            kept = [value for value, loops in zip(values, loop, strict=True) if not loops]
            return mean(kept) if kept else None

        made.append({
            "way": way, "prompts": len(adaptive), "equal": all(row["equal"] for _, rows in results for row in rows),
            "best number": best, "its mean": fixed[best], "its worst": min(gains[best]),
            "without loops": apart(gains[best]), "adaptive": mean(adaptive), "worst": min(adaptive),
            "adaptive without loops": apart(adaptive), "oracle": mean(oracle),
            "of the oracle": mean(adaptive) / mean(oracle)})
    return made


def grouped(results: Sequence[tuple[str, list[dict[str, Any]]]]) -> dict[str, list[dict[str, Any]]]:
    """The table of each category, and of all but the trap."""
    found = {"all": table([result for result in results if result[0] != TRAP])}
    for name in dict.fromkeys(name for name, _ in results):
        found[name] = table([result for result in results if result[0] == name])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--model", choices=MODELS, default=DEFAULT)
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    config, pair = load_config(args.config), bundled_pair(args.model)
    results: list[tuple[str, list[dict[str, Any]]]] = []
    with Session(config, pair=pair, general=True, interpreted=True) as session:
        kept = Finished(args.resume, [config.sha256, *pair.digests, args.max_new_tokens, sorted(
            (way, METHODS[method].digest) for way, (method, _) in WAYS.items())])
        prompts = prompts_of(pair, session.target.program.graph.vocab, args.prompts)
        with counting("prompts", len(prompts)) as tell:
            for number, (name, ids) in enumerate(prompts, 1):
                make = partial(measured, session, ids, args.max_new_tokens, pair.ends)
                results.append((name, kept.of(f"{name} {ids}", make)))
                tell(number, name)
    tables = grouped(results)
    for name, rows in tables.items():
        show(f"{name}: {args.model} pair on {args.config}, {args.max_new_tokens} new tokens", rows)
    if args.out:
        write(args.out, {"command": f"python benchmarks/adaptive.py --config {args.config} --model {args.model} "
                                    f"--prompts {args.prompts} --max-new-tokens {args.max_new_tokens}",
                         "tables": tables, "results": [{"category": name, "rows": rows} for name, rows in results]})


if __name__ == "__main__":
    main()
