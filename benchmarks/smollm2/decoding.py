"""What prompt lookup gains over autoregressive decoding on forty requests, host counted.

Both methods give the greedy text of the integers, whatever is drafted (tests and `benchmarks.equality` hold that), so
it is computed once, many texts at a time, and a stand-in for the interpreter then tells it to the decoding loop:
drafts, launches and cycles are those of the real run, in a small part of its time. Requests :data:`TRIED` are also run
with the interpreter itself, and must have equal tokens and cycles.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.common import show
from benchmarks.smollm2.asked import asked
from benchmarks.smollm2.model import BITS, model_path, pair_of
from benchmarks.smollm2.requests import TOKENS, answers, behind
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Cache, Rows
from gemmule.config import load_config
from gemmule.sw.decoding.generation import distinct
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.interpreted import InterpretedModel

__all__ = ["METHODS", "decoding"]

CONFIG = "base"
METHODS = ("pld",)
TRIED, TRIED_TOKENS = (4, 24), 24
"""Requests that are run with the interpreter itself, and their new tokens."""
LOOPING = 0.5
"""Share of distinct 4-grams below which a text counts as looping."""
Record = dict[str, Any]


class Told:
    """In the place of an interpreter: answers each row with the next token of a text that is known."""

    def __init__(self, text: Sequence[int], vocab: int, first: int) -> None:
        """``first``: position of the text's first token."""
        self.text, self.vocab, self.first = text, vocab, first

    def forward(self, rows: Rows, cache: Cache, *others: Any) -> np.ndarray:
        """Logits: 1 of the next token, 0 of others; of rows behind the text, or of a wrong draft, whatever.

        ``others``: what an interpreter is given for a network that borrows rows, or lends some.
        """
        cache.advance(rows)
        found = np.zeros((len(rows), self.vocab), dtype=np.int64)
        for row, position in enumerate(rows.positions - self.first):
            if position + 1 < len(self.text):
                found[row, self.text[position + 1]] = 1
        return found


def decoding(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record``: by weights a row for each request, then sums."""
    record.update(config=CONFIG, new_tokens=TOKENS, methods=list(METHODS))
    for bits in BITS:
        part = record.setdefault(bits, {"rows": []})
        _measured(bits, part["rows"], save)
        part["summary"] = summary(part["rows"])
        save()
        show(f"{TOKENS} new tokens at most, {CONFIG}, {bits}", part["summary"])


def _measured(bits: str, rows: list[Record], save: Callable[[], None]) -> None:
    """Of the requests behind those that ``rows`` has."""
    pair, config, found, every = pair_of(bits), load_config(CONFIG), answers(bits), asked()
    prefix = load_model(model_path(bits)).made.prefix
    with Session(config, pair=pair, interpreted=True) as session:
        model = session.target
        assert isinstance(model, InterpretedModel)
        stop, real = pair.ends, (model.interpreter, model.cache)
        for number in range(len(rows), len(every)):
            prompt = list(behind(every[number], prefix))
            text = [*prompt, *found[number]]
            row = {"request": every[number].name, "category": every[number].category, "prompt_tokens": len(prompt),
                   "new_tokens": len(found[number]), "distinct_4grams": distinct(found[number], 4)}
            for method in ("ar", *METHODS):
                model.interpreter, model.cache = _told(text, model)
                run = session.generate(method, prompt, TOKENS, stop=stop)
                if run.tokens != found[number]:
                    raise SystemExit(f"{every[number].name}: {method} must give the greedy text, which it does not")
                row[method] = {"cycles": run.ledger.cycles, "prefill_cycles": run.prefill.cycles,
                               "tokens_per_step": run.tokens_per_step}
            if number in TRIED:
                _tried(session, model, real, prompt, text, stop)
            rows.append(row)
            save()


def _told(text: Sequence[int], model: InterpretedModel) -> tuple[Any, Cache]:
    """An interpreter that knows the text, and a cache that holds positions alone."""
    graph = model.network.graph
    cache = Cache(graph)
    cache.width = {}
    return Told(text, graph.vocab, graph.prefix), cache


def _tried(session: Session, model: InterpretedModel, real: tuple[Any, Cache], prompt: list[int],
           text: Sequence[int], stop: frozenset[int]) -> None:
    """The same run with the interpreter itself.

    Raises:
        SystemExit: tokens or cycles differ.
    """
    for method in ("ar", *METHODS):
        runs = []
        for interpreter, cache in (real, _told(text, model)):
            model.interpreter, model.cache = interpreter, cache
            runs.append(session.generate(method, prompt, TRIED_TOKENS, stop=stop))
        if runs[0].tokens != runs[1].tokens or runs[0].ledger.cycles != runs[1].ledger.cycles:
            raise SystemExit(f"{method}: the text as told must take the cycles of the interpreter's run")


def summary(rows: list[Record]) -> list[Record]:
    """By method and part: all, by category, looping or not. ``speedup``: mean of requests; ``speedup_all``: of sums."""
    parts = {"all": rows} | {
        category: [row for row in rows if row["category"] == category]
        for category in dict.fromkeys(row["category"] for row in rows)} | {
        "looping": [row for row in rows if row["distinct_4grams"] < LOOPING],
        "not looping": [row for row in rows if row["distinct_4grams"] >= LOOPING]}
    found = []
    for method in METHODS:
        for name, some in parts.items():
            if some:
                gains = [row["ar"]["cycles"] / row[method]["cycles"] for row in some]
                found.append({
                    "method": method, "part": name, "requests": len(some),
                    "new_tokens": sum(row["new_tokens"] for row in some),
                    "tokens_per_step": statistics.mean(row[method]["tokens_per_step"] for row in some),
                    "speedup": statistics.mean(gains), "speedup_median": statistics.median(gains),
                    "speedup_all": sum(row["ar"]["cycles"] for row in some) / sum(
                        row[method]["cycles"] for row in some),
                    "least": min(gains), "most": max(gains), "slower": sum(gain < 1 for gain in gains),
                    "distinct_4grams": statistics.mean(row["distinct_4grams"] for row in some)})
    return found
