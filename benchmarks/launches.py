"""What a launch holds: a pass, the drafts of a step, or the whole step with the pass that verifies; cycles told of all.

    python benchmarks/launches.py --out docs/results/launches.json

Held-out completions by a draft model, first ones first, none left out; prompts and host counted, as by `gemmule bench`.
Per launch and step, cycles are of what is behind the prompt. Speed-ups are over autoregressive decoding, by the host's
cycles a launch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import show, write

from gemmule.config import load_config
from gemmule.sw.benches.bench import Case, costs
from gemmule.sw.benches.rows import rows_of
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.session import Session
from gemmule.sw.limits import DEFAULT, LAUNCHES, MODELS
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.prompts.categories import load_categories

TOLD = (0, 2_000, 5_000, 20_000)
"""Of the host, cycles a launch."""
MOST_PROMPT = 96
"""Tokens of a prompt, as `gemmule bench` has it."""


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One for each length and launch."""
    config, pair = load_config(args.config), bundled_pair(args.model)
    prompts = [pair.encode(prompt.text)[:MOST_PROMPT] for prompt in load_categories()["completion"][:args.prompts]]
    lengths = [int(length) for length in args.lengths.split(",")]
    found: dict[tuple[int, str], dict[str, Any]] = {}
    references: list[Generation] = []
    for launch in LAUNCHES:
        with Session(config, pair=pair, launch=launch) as session:
            references = references or [session.generate("ar", ids, args.max_new_tokens, stop=pair.ends)
                                        for ids in prompts]
            results = [[_result(session, ids, length, pair.ends, reference)
                        for ids, reference in zip(prompts, references, strict=True)] for length in lengths]
        for length, mine in zip(lengths, results, strict=True):
            (row,) = rows_of(mine, {}, config.host)
            runs = [result["run"] for result in mine]
            steps = sum(run["steps"] for run in runs)
            launches, cycles = (sum(sum(run[name].values()) - sum(run[f"prefill_{name}"].values()) for run in runs)
                                for name in ("launches", "cycles"))
            found[length, launch] = {
                "drafts": length, "launch": launch, "equal": row["equal_to_ar"], "launches a step": launches / steps,
                "device cycles a step": cycles / steps, "cycles a step": (
                    cycles + launches * config.host.launch_cycles) / steps + config.host.step_cycles,
                **{f"speed-up at {count:,}": row["speedup_by_launch_cycles"][str(count)] for count in TOLD}}
    yield from (found[key] for key in sorted(found, key=lambda key: (key[0], LAUNCHES.index(key[1]))))


def _result(session: Session, ids: list[int], length: int, ends: frozenset[int],
            reference: Generation) -> dict[str, Any]:
    """A draft beside autoregressive decoding, as the rows of a bench are made of it."""
    run = session.generate("draft", ids, len(reference.tokens), length, ends)
    case = Case(method="draft", num_tokens=length, temperature=0, rule="greedy")
    return asdict(case) | {
        "category": "completion", "prompts": 1, "equal": int(run.tokens == reference.tokens),
        "distinct_4grams": None, "looping": 0, "steps": run.steps,
        "run": costs(run, session.target, [ids]), "ar": costs(reference, session.target, [ids])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--model", choices=MODELS, default=DEFAULT)
    parser.add_argument("--lengths", default="1,3,7")
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    made = list(rows(args))
    show(f"{args.model} pair on {args.config}, {args.prompts} prompts, {args.max_new_tokens} new tokens", made)
    if args.out:
        write(args.out, {"command": f"python benchmarks/launches.py --config {args.config} --model {args.model} "
                                    f"--lengths {args.lengths} --prompts {args.prompts} --max-new-tokens "
                                    f"{args.max_new_tokens}", "rows": made})


if __name__ == "__main__":
    main()
