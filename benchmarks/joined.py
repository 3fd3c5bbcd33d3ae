"""What SmolLM2's trained drafters gain on requests: the one-pass one by itself and joined with runs of the text.

    python -m benchmarks.joined --out docs/results
    python -m benchmarks.joined --methods parallel,eagle --record eagle --out docs/results

Prompt and host count, each text begins cold. The target's greedy text does not depend on what is drafted (tests hold
that), so it is written once, many texts at a time, and a stand-in for the target's interpreter tells it to the decoding
loop, with the hidden rows that one pass over the text leaves. Drafts, launches and cycles are those of the real run, in
a small part of its time. The first ``--real`` requests of each category also run with the interpreter itself, and must
have equal tokens, steps and cycles up to the last step, in which candidates may go on behind the text's end. `joined`
also learns from the answers behind rejected candidates, which nobody can tell: it always runs with the interpreter.
Texts that another record has are taken from there. `gemmule bench --model smollm2 --method parallel,joined
--num-speculative-tokens 15 --max-new-tokens 96` is the real run of all.

Beside each gain behind the prompt stands what acceptance and passes predict: tokens and passes as counted, each pass
at the cycles of its rows in the middle of the answer. A run that was broken off goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import show
from benchmarks.smollm2.decoding import LOOPING, Told
from benchmarks.smollm2.greedy import greedy
from benchmarks.smollm2.requests import TOKENS
from gemmule import __version__
from gemmule.compiler.ir import Cache, Rows
from gemmule.config import load_config
from gemmule.io.files import write_atomically
from gemmule.sw.decoding.generation import Generation, distinct
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.interpreted import InterpretedModel, LentRows
from gemmule.sw.models.pair import open_pair
from gemmule.sw.models.trained.calibrate import hidden_rows
from gemmule.sw.prompts.requests import first_requests
from gemmule.sw.step import Want
from gemmule.sw.text.chat import Template

CONFIG, NAME, SCHEMA = "base", "smollm2", "gemmule/benchmark-joined/1"
PARALLEL = "parallel,joined"
LEARNING = ("joined",)
"""Methods for which the interpreter answers behind every candidate."""
Record = dict[str, Any]


class Lending(Told):
    """Tells a text, and leaves the hidden rows of each position's token."""

    def __init__(self, text: Sequence[int], model: InterpretedModel, hidden: dict[int, np.ndarray]) -> None:
        super().__init__(text, model.network.graph.vocab, model.first)
        assert isinstance(model.lent, LentRows)
        self.lent, self.hidden = model.lent, hidden

    def forward(self, rows: Rows, cache: Cache, *others: Any) -> np.ndarray:
        first = cache.length(0)
        for depth, values in self.hidden.items():
            places = np.minimum(rows.positions - self.first, len(values) - 1)
            self.lent.rows[depth][first:first + len(rows)] = values[places]
        return super().forward(rows, cache, *others)


def measured(session: Session, requests: dict[str, list[int]], texts: dict[str, list[int]], ends: frozenset[int],
             rows: list[Record], save: Callable[[], None], methods: Sequence[str], real_ones: int) -> None:
    """Fill ``rows``: of each request those that are not there yet. ``requests``, ``texts``: by name, prompt and answer;
    ``real_ones``: of each category that also run with the interpreter.
    """
    model = session.target
    assert isinstance(model, InterpretedModel)
    assert isinstance(model.lent, LentRows)
    real, seen = (model.interpreter, model.cache), Counter(row["category"] for row in rows)
    for request, prompt in list(requests.items())[len(rows):]:
        answer, category = texts[request], request.split("/")[0]
        text = [*prompt, *answer]
        told = Lending(text, model, hidden_rows(model.network, Rows.chain(text, model.first), tuple(model.lent.rows)))

        def run(method: str, told: Lending | None, prompt: list[int] = prompt) -> Generation:
            model.interpreter, model.cache = real
            if told:
                model.interpreter, model.cache = told, Cache(model.network.graph)  # type: ignore[assignment]
                model.cache.width = {}
            return session.generate(method, prompt, TOKENS, stop=ends)

        row: Record = {"request": request, "category": category, "prompt_tokens": len(prompt),
                       "new_tokens": len(answer), "distinct_4grams": distinct(answer, 4)}
        plain = run("ar", told)
        costs = _costs(model, len(prompt) + len(answer) // 2)
        runs = {method: run(method, None if method in LEARNING else told) for method in methods}
        for method, made in runs.items():
            if made.tokens != answer:
                raise SystemExit(f"{request}: {method} must give the greedy text, which it does not")
            row[method] = _row(made, plain, costs)
        for method, made in runs.items():
            if seen[category] >= real_ones or method in LEARNING:
                continue
            other = run(method, None)
            if (other.tokens, other.steps[:-1], other.curve[:-1]) != (answer, made.steps[:-1], made.curve[:-1]):
                raise SystemExit(f"{request}: {method}, the text as told, must take the steps and cycles of the "
                                 "interpreter's run")
        seen[category] += 1
        rows.append(row)
        print(f"{request}: " + ", ".join(f"{name} {row[name]['speedup']:.2f}x" for name in methods), flush=True)
        save()


def _costs(model: InterpretedModel, context: int) -> list[int]:
    """Cycles of a pass by its rows, from one on, host included."""
    found = []
    for count in range(1, model.program.max_rows + 1):
        rows = Rows.chain([0] * count, model.first + context)
        results = model.launched(rows, Want(), np.ones(count, dtype=bool), [model.first + context],
                                 ((0, model.network.graph.layers),))
        found.append(sum(int(one.cycles) + model.program.config.host.launch_cycles for one in results))
    return found


def _row(run: Generation, plain: Generation, costs: list[int]) -> Record:
    host = run.ledger.config.host
    drafting = run.ledger.by_model.get("draft", 0) + host.launch_cycles * run.ledger.launches.get("draft", 0)
    behind_prompt = drafting - run.prefill.by_model.get("draft", 0)
    steps = sum(costs[drafted] + host.step_cycles for drafted, _ in run.steps)
    predicted = len(plain.steps) * (costs[0] + host.step_cycles) / (steps + behind_prompt)
    return {
        "cycles": run.ledger.cycles, "speedup": plain.ledger.cycles / run.ledger.cycles,
        "behind_prompt": (plain.ledger.cycles - plain.prefill.cycles) / (run.ledger.cycles - run.prefill.cycles),
        "predicted_behind_prompt": predicted, "tokens_per_step": len(run.tokens) / len(run.steps),
        "rows_per_step": statistics.mean(1 + drafted for drafted, _ in run.steps),
        "drafter_passes_per_step": (run.ledger.launches.get("draft", 0)
                                    - run.prefill.launches.get("draft", 0)) / len(run.steps),
        "drafting": drafting / run.ledger.cycles}


def summary(rows: list[Record], methods: Sequence[str]) -> list[Record]:
    """Means over requests, by method and part: all, by category, looping or not."""
    parts = {"all": rows} | {category: [row for row in rows if row["category"] == category]
                             for category in dict.fromkeys(row["category"] for row in rows)} | {
        "looping": [row for row in rows if row["distinct_4grams"] < LOOPING],
        "not looping": [row for row in rows if row["distinct_4grams"] >= LOOPING]}
    found = []
    for name in methods:
        for part, mine in parts.items():
            if mine:
                means = {key: statistics.mean(row[name][key] for row in mine) for key in mine[0][name]
                         if key != "cycles"}
                found.append({"method": name, "part": part, "requests": len(mine), **means,
                              "least": min(row[name]["speedup"] for row in mine),
                              "median": statistics.median(row[name]["speedup"] for row in mine),
                              "most": max(row[name]["speedup"] for row in mine)})
    return found


def _known(folder: Path, target: str) -> dict[str, list[int]]:
    """Greedy texts of this target by request, from records of this benchmark."""
    found: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.json")):
        kept = json.loads(path.read_text())
        if isinstance(kept, dict) and kept.get("schema") == SCHEMA and (
                kept["target_sha256"], kept["new_tokens"]) == (target, TOKENS):
            found |= kept["texts"]
    return found


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10, help="the first so many of each category")
    parser.add_argument("--methods", default=PARALLEL, help="of trained drafters, separated by commas")
    parser.add_argument("--record", default="joined", help="name of the result")
    parser.add_argument("--real", type=int, default=1, help="requests of each category that also run for real")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    config, pair, path = load_config(CONFIG), open_pair(NAME), args.out / f"{args.record}.json"
    methods, known = args.methods.split(","), _known(args.out, pair.digests[0])
    kinds = [METHODS[method].trained for method in methods]
    assert pair.chat
    template, requests = Template(pair.chat, NAME), dict[str, list[int]]()
    for prompts in first_requests().values():
        for prompt in prompts[:args.requests]:
            requests[prompt.name] = pair.plain(template.render([{"role": "user", "content": prompt.text}]))
    with Session(config, pair=pair, interpreted=True, trained=kinds) as session:
        record: Record = {
            "schema": SCHEMA, "version": __version__, "config": CONFIG,
            "config_sha256": config.sha256, "model": NAME, "new_tokens": TOKENS, "methods": methods,
            "drafters_sha256": {kind: session.trained[kind].digest for kind in kinds}, "requests": args.requests,
            "target_sha256": pair.digests[0],
            "extra_parameters": {method: session.extra_parameters(method) for method in methods}}
        kept = json.loads(path.read_text()) if path.is_file() else {}
        same = all(kept.get(key) == json.loads(json.dumps(value)) for key, value in record.items())
        network = session.target.network  # type: ignore[attr-defined]
        lacking = [name for name in requests if name not in known]
        known |= dict(zip(lacking, greedy(network, [requests[name] for name in lacking], TOKENS, pair.ends)
                          if lacking else [], strict=True))
        record |= {"texts": {name: known[name] for name in requests}, "rows": kept["rows"] if same else []}
        measured(session, requests, record["texts"], pair.ends, record["rows"],
                 lambda: write_atomically(path, json.dumps(record, indent=1) + "\n"), methods, args.real)
    record["summary"] = summary(record["rows"], methods)
    show(f"{TOKENS} new tokens at most, {CONFIG}", record["summary"])
    write_atomically(path, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
