"""SmolLM2 that drafts for itself in a small cache: what it costs and gives by length of the text.

    python -m benchmarks.triforce cycles --out docs/results/triforce.json
    python -m benchmarks.triforce prompt --out docs/results/triforce.json
    python -m benchmarks.triforce runs --out docs/results/triforce.json
    python -m benchmarks.triforce needle --out docs/results/triforce.json

``cycles``: passes of SmolLM2 (int8) on `base` with memories for lists of 8,192 rows, timing alone: over the whole cache
by rows, over a small one, a retrieval (that by chunks on `base` as it is), and the copy of what a step adds; and from
these the speed-up over autoregressive decoding by how often drafts are accepted, with the best number of drafts.
``prompt``: keys and values of a text of 8,000 tokens, a module of Python's library, by the integer interpreter, kept in
build and gone on with where they end. ``runs``: real texts behind the first tokens of it, as many as are there, by
:data:`WAYS`; tokens must be those of autoregressive decoding. ``needle``: the prompts
of `python -m benchmarks.pruned_tasks needle`, a sentence in 900 tokens, on `base`: cycles of an answer with the whole
cache, with a small one that drafts for it, and with pruned ones in its place, whose answers are those of
docs/results/pruned_tasks.json. Finished rows are kept in --out and not run again.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import console, run_part, show
from benchmarks.pruned_tasks import ANSWER, CHOSEN, Asked, entered, needles, right
from benchmarks.pruning import LISTS
from benchmarks.smollm2.model import model_path, pair_of, source
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.compiler.search.cost import passes_cost
from gemmule.compiler.search.narrow import chosen_program
from gemmule.config import Config, load_config
from gemmule.sw.decoding.asking import alone
from gemmule.sw.decoding.methods import drafting_of
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.workloads.hierarchy import Hierarchy
from gemmule.sw.workloads.pruned_cycles import copy_cycles, selection_cycles, token_cycles

MODULE, TOKENS, PIECE = "configparser", 8000, 256
"""Of the prompt, and how many of its rows go in a pass."""
KEPT = Path("build/triforce_prompt.npz")
CONTEXTS, WIDTHS = (1024, 2048, 3072, 4096, 6144, 8000), tuple(range(1, 9))
"""Lengths, and rows of passes."""
BUDGET, EVERY, SINKS, COPIED = 256, 256, 16, 4
"""Rows of the small cache and tokens from one retrieval to the next; rows that a step adds."""
SCHEDULE = Pruning(keep=BUDGET, whole=BUDGET, every=EVERY, first=SINKS, last=SINKS)
CHUNKS = replace(SCHEDULE, score="chunks")
"""The same by chunks, on `base` as it is."""
ACCEPTED, LOOKUP, PROPOSED = (0.6, 0.7, 0.8, 0.9, 0.95), (0.0, 0.5), 3
"""Shares of drafts that the whole cache accepts, and that the small one accepts of what prompt lookup proposes for a
pass, so many tokens; 0: the target drafts alone."""
RUNS, NEW = (2048, 4096, 6144, 7900), 32
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "ar": ("ar", {}), "suffix": ("suffix", {}),
    "triforce": ("triforce", {}), "triforce, window": ("triforce", {"retrieve": "window"}),
    "triforce, alone": ("triforce", {"lowest_drafter": "none"})}
FINDING = ("ar", "suffix", "triforce", "triforce, window")
PRUNED = ("whole cache", "half", "a quarter", "half, pages", "a quarter, pages", "window of 256")
"""Ways to answer with the whole cache, and schedules of a cache in its place."""
RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "pruned_tasks.json"
Record = dict[str, Any]


def config() -> Config:
    """`base` with lists of 8,192 rows."""
    return Config.model_validate(load_config("base").model_dump() | {"name": "base-long-lists", **LISTS})


def text() -> list[int]:
    """Tokens of the prompt."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.origin:
        raise SystemExit(f"the standard library's sources are needed, and {MODULE} is not there")
    ids: list[int] = source().tokenizer.encode(Path(spec.origin).read_text("utf-8"), add_special_tokens=False).ids
    return ids[:TOKENS]


class Prompt:
    """Keys and values of the text's first tokens, as many as have been passed."""

    def __init__(self, network: Network, ids: Sequence[int]) -> None:
        self.network, self.ids, self.cache = network, ids, Cache(network.graph)
        if KEPT.is_file():
            with np.load(KEPT) as found:
                for name in self.cache.width:
                    self.cache.extend(name, 0, *found[name])
                self.cache.advance(self._rows(0, found[name].shape[1]))

    @property
    def passed(self) -> int:
        """Tokens."""
        return self.cache.length() - self.network.graph.prefix

    def go_on(self) -> None:
        """A piece more; the head is left out."""
        graph, first = self.network.graph, self.passed
        rows = self._rows(first, min(PIECE, len(self.ids) - first))
        head = graph.by_name[graph.output]
        for node, _ in IntegerInterpreter(self.network).steps(rows, self.cache):
            if node.name in head.inputs:
                break
        self.cache.advance(rows)

    def save(self) -> None:
        """For the next run."""
        first = self.network.graph.prefix
        KEPT.parent.mkdir(exist_ok=True)
        part = KEPT.with_suffix(".part.npz")
        np.savez(part, **{name: np.stack([rows[first:] for rows in self.cache.contents(name)])  # type: ignore[arg-type]
                          for name in self.cache.width})
        part.replace(KEPT)

    def _rows(self, first: int, count: int) -> Rows:
        return Rows.chain(self.ids[first:first + count], first).behind(self.network.graph.prefix)


def prompt(record: Record, save: Callable[[], None]) -> None:
    """Pass the text."""
    kept = Prompt(load_model(model_path("int8")).network, text())
    while kept.passed < len(kept.ids):
        kept.go_on()
        if kept.passed % (2 * PIECE) < PIECE or kept.passed == len(kept.ids):
            kept.save()
        console.print(f"{kept.passed:,} of {len(kept.ids):,} tokens")
    record["prompt"] = {"module": MODULE, "tokens": len(kept.ids)}


def session(made: Config) -> Session:
    """SmolLM2, values by the integer interpreter and exact cycles, with room for a small cache."""
    pair = pair_of("int8")
    return Session(made, pair=pair, general=True, interpreted=True,
                   drafting=drafting_of({"triforce": {}}, pair.positions))


def passing(model: LoadedModel, rows: int, context: int) -> int:
    """Cycles of a pass over so many rows behind ``context`` others, the host's launch included."""
    cached = model.first + context
    program = chosen_program(model.narrow, rows, cached) or model.program
    return passes_cost(program, [(rows, cached)]) + model.program.config.host.launch_cycles


def cycles(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` length by length, then what they predict."""
    rows = record.setdefault("levels", [])
    if left := [context for context in CONTEXTS if not any(row["context"] == context for row in rows)]:
        with session(config()) as made:
            model = made.target
            small = {m: passing(model, m, BUDGET + EVERY // 2) for m in WIDTHS}
            for context in left:
                rows.append({"context": context, "whole": {str(m): passing(model, m, context) for m in WIDTHS},
                             "small": {str(m): found for m, found in small.items()}} | _moves(model, context))
                save()
    if any("chunks" not in row for row in rows):
        selection = pair_of("int8").target(load_config("base"), 0, pruning=CHUNKS).selection
        assert selection
        for row in rows:
            row["chunks"] = selection_cycles(selection, CHUNKS, row["context"]).cycles
        save()
    record["predicted"] = [predicted(row, share, kept, config().host.step_cycles)
                           for row in rows for kept in LOOKUP for share in ACCEPTED]
    save()
    show("cycles of passes by rows, host included", [
        {"context": row["context"], **{f"whole, {m}": row["whole"][str(m)] for m in (1, 4, 8)},
         **{f"small, {m}": row["small"][str(m)] for m in (1, 4)},
         **{name: row[name] for name in ("retrieval", "chunks", "window", "copy")}} for row in rows])
    show("predicted speed-up over autoregressive decoding, best number of drafts", record["predicted"])


def _moves(model: LoadedModel, context: int) -> dict[str, int]:
    """Of choosing rows, and of the copy of what a step adds."""
    assert model.selection is not None
    found = {"retrieval": selection_cycles(model.selection, SCHEDULE, context).cycles,
             "window": selection_cycles(model.selection, replace(SCHEDULE, score="none"), context).cycles}
    return found | {"copy": copy_cycles(model.selection, context - COPIED, BUDGET, COPIED)}


def predicted(row: Record, accepted: float, kept: float, step: int) -> Record:
    """What drafting in the small cache gives where the whole one accepts each token with such a chance.

    ``kept``: chance that the small cache accepts what prompt lookup proposes below it; 0: the target drafts alone.
    ``step``: cycles of the host in each step.
    """
    levels = Hierarchy(whole={int(m): found for m, found in row["whole"].items()},
                       small={int(m): found for m, found in row["small"].items()},
                       step=step + row["copy"], retrieval=row["retrieval"] / EVERY)
    proposed = PROPOSED if kept else 0
    drafts, speed_up = levels.best(accepted, proposed, kept)
    return {"context": row["context"], "kept": kept, "accepted": accepted, "drafts": drafts, "speed_up": speed_up,
            "lookup_alone": levels.below_alone(proposed, kept) if kept else None}


def runs(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` way by way, at each length that the prompt has."""
    rows = record.setdefault("runs", [])
    with session(config()) as made:
        model = made.target
        assert isinstance(model, InterpretedModel)
        kept = Prompt(model.network, text())
        for context in RUNS:
            for name, (method, options) in WAYS.items():
                if kept.passed < context or any((row["context"], row["way"]) == (context, name) for row in rows):
                    continue
                model.cache.begin_with(kept.cache, 0)
                model.cache.truncate(model.first + context - 1)
                talk = made.converse(method, options=options)
                entered(talk.cached.begin(kept.ids[:context]))
                found = talk.turn(kept.ids[:context], NEW)
                rows.append({"context": context, "way": name, "tokens": found.tokens, "cycles": found.ledger.cycles,
                             "steps": len(found.steps), "accepted": sum(part for _, part in found.steps),
                             "drafted": sum(part for part, _ in found.steps),
                             "small_passes": getattr(talk.drafter, "passes", 0),
                             "cycles_by_model": dict(found.ledger.by_model)})
                save()
    plain = {row["context"]: row for row in rows if row["way"] == "ar"}
    for row in rows:
        assert row["tokens"] == plain[row["context"]]["tokens"], row["way"]
        row["speed-up"] = plain[row["context"]]["cycles"] / row["cycles"]
    save()
    show(f"{NEW} tokens behind {MODULE}", [
        {"context": row["context"], "way": row["way"], "tokens a step": len(row["tokens"]) / row["steps"],
         "accepted": row["accepted"] / max(1, row["drafted"]), "cycles a token": row["cycles"] // len(row["tokens"]),
         "speed-up": row["speed-up"]} for row in rows])


def needle(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` prompt by prompt, then what pruned caches take."""
    reader, rows = Asked(), record.setdefault("needle", [])
    with session(load_config("base")) as made:
        model = made.target
        assert isinstance(model, InterpretedModel)
        for asked in needles(reader):
            left = [way for way in FINDING if not any(row["way"] == way and all(
                row[name] == value for name, value in asked.key.items()) for row in rows)]
            if left:
                alone(reader.kv.begin(asked.ids))
            for way in left:
                method, options = WAYS[way]
                model.cache.begin_with(reader.model.cache, 0)
                talk = made.converse(method, options=options, stop=frozenset(reader.ends))
                entered(talk.cached.begin(asked.ids))
                found = talk.turn(asked.ids, ANSWER)
                said = reader.text([token for token in found.tokens if token not in reader.ends])
                rows.append({**asked.key, "way": way, "prompt_tokens": len(asked.ids), "tokens": found.tokens,
                             "answer": said, "right": right(said, asked.number), "cycles": found.ledger.cycles,
                             "steps": len(found.steps), "accepted": sum(part for _, part in found.steps),
                             "drafted": sum(part for part, _ in found.steps),
                             "cycles_by_model": dict(found.ledger.by_model)})
                save()
    plain = {(row["haystack"], row["depth"]): row["tokens"] for row in rows if row["way"] == "ar"}
    assert all(row["tokens"] == plain[row["haystack"], row["depth"]] for row in rows)
    answers = record.setdefault("pruned_answers", [])
    for name in PRUNED:
        if not any(row["schedule"] == name for row in answers):
            answers.append(pruned_answers(name, reader.count))
            save()
    show("answers with the whole cache", [
        {"way": way, "right": sum(row["right"] for row in rows if row["way"] == way),
         "cycles": int(np.mean([row["cycles"] for row in rows if row["way"] == way]))} for way in FINDING])
    show("answers with pruned caches", answers)


def pruned_answers(name: str, count: Callable[[str], int]) -> Record:
    """How often a schedule is right, and cycles of an answer, in the mean: of as many passes as it has tokens, with the
    one that ends it, and one selection. ``count``: tokens of a text.
    """
    schedule, made = CHOSEN[name], load_config("base")
    placed = pair_of("int8").target(made, 0, pruning=schedule or CHOSEN["half"])
    each = made.host.launch_cycles + made.host.step_cycles
    answers = [row for row in json.loads(RESULTS.read_text())["needle"] if row["schedule"] == name]
    cycles = []
    for row in answers:
        found, passes = token_cycles(placed, schedule, row["prompt_tokens"]), count(row["answer"]) + 1
        cycles.append(min(ANSWER, passes) * (found.passing + each) + found.selection)
    return {"schedule": name, "right": sum(row["right"] for row in answers), "of": len(answers),
            "cycles": int(np.mean(cycles))}


PARTS: dict[str, Callable[[Record, Callable[[], None]], None]] = {
    "cycles": cycles, "prompt": prompt, "runs": runs, "needle": needle}


def main() -> None:
    run_part(__doc__, PARTS, "triforce", {"model": "smollm2", "weights": "int8"})


if __name__ == "__main__":
    main()
