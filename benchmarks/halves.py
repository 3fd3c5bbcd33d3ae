"""SmolLM2 with 4 bits of cached keys or values: how well it predicts a text, bytes, and cycles of a token.

    python -m benchmarks.halves uniform --out docs/results/halves.json
    python -m benchmarks.halves chosen --out docs/results/halves.json
    python -m benchmarks.halves cycles --out docs/results/halves.json

``uniform``: perplexity of two windows of 1,024 tokens, prose and code that calibration does not see, by the integer
interpreter, over that of the same integers with 8 bits (docs/results/pruning.json). All rows before the last multiple
of 32 have 4 bits of keys, of values or of both. *Progressive* keys: scores with 4 bits first; a row whose largest
probability, a constant prefix left out, is below a threshold takes all 8 bits, which are at most 119 then, for a lower
half has 4 bits with a sign. ``chosen``: the same windows by schedules, with the device's choices
(tests/compiler/test_packed.py). ``cycles``: a pass of one row behind contexts up to 4,096 positions on `base` with
memories for lists of that length, timing alone, and the share of a selection that each token pays. Finished rows are
kept in --out and not run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import run_part, show
from benchmarks.pruning import HALF, LISTS, OBSERVED, windows
from benchmarks.smollm2.model import model_path, pair_of
from gemmule import numerics
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Attention, IntegerInterpreter, Network
from gemmule.compiler.ir.cache import Attended
from gemmule.config import Config, load_config
from gemmule.numerics.online import prefixed_softmax
from gemmule.numerics.products import exact_matmul
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.models.placed import Placed
from gemmule.sw.workloads.pruned import losses
from gemmule.sw.workloads.pruned_cycles import token_cycles

EVERY, MOST = 32, 119
FOUR = Pruning(keep=1.0, four=1.0)
CHOSEN = {"half of the rows, values": replace(FOUR, four=0.5), "half of the rows, both": replace(
    FOUR, four=0.5, halves="both"), "half stay, all values": replace(FOUR, keep=0.5)}
TIMED = {"8 bits": None, "values of 4 bits": FOUR, "both of 4 bits": replace(FOUR, halves="both")}
CONTEXTS = (1024, 2048, 4096)
RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
Record = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """Which numbers of old rows have 4 bits."""

    keys: bool = False
    values: bool = False
    below: float | None = None
    """Largest probability of a row below which it takes all bits of keys after all."""


WAYS = {"values": Way(values=True), "keys": Way(keys=True), "keys, all bits below 0.1": Way(keys=True, below=0.1),
        "keys, all bits below 0.3": Way(keys=True, below=0.3), "keys, all bits below 0.5": Way(keys=True, below=0.5)}


class Halving(IntegerInterpreter):
    """Rows before the last multiple of 32 have 4 bits."""

    way = Way()
    counted = np.zeros(2, dtype=np.int64)
    """Rows of heads, and those that took all bits; of all interpreters."""

    def _attend(self, node: Attention, query: np.ndarray, part: Attended) -> np.ndarray:
        rows, first, seen = len(query), node.prefix, part.seen
        score, context = self._tensor(node, "score"), self._tensor(node, "context")
        queries, keys, values = (x.reshape(len(x), -1, node.head_dim).transpose(1, 0, 2).astype(np.int64)
                                 for x in (query, part.keys, part.values))
        columns = np.arange(keys.shape[1]) - first
        places = columns[-rows:, None] // EVERY * EVERY  # of each row
        old = (columns >= 0) & (columns < places)
        found = np.zeros((node.heads, rows, node.head_dim), dtype=np.int64)
        for head in range(node.heads):
            kv = head // (node.heads // node.kv_heads)
            t = self._scores(queries[head], keys[kv], old, seen, first, score[head])
            mixed, reciprocal, length = prefixed_softmax(t, values[kv], seen, first)
            if self.way.values:
                mixed = mixed + self._lost(t, values[kv], old, seen, first)
            found[head] = numerics.saturate(numerics.requant_row(
                mixed, reciprocal, length, context[head, 0], context[head, 1]), 8)
        return found.transpose(1, 0, 2).reshape(rows, -1)

    def _scores(self, query: np.ndarray, keys: np.ndarray, old: np.ndarray, seen: np.ndarray, first: int,
                scale: np.ndarray) -> np.ndarray:
        """Of a head  # int64 [rows, columns]."""
        whole = exact_matmul(query, keys.T)
        if self.way.keys:
            halves = np.where(old, exact_matmul(query, numerics.halved(keys).astype(np.int64).T), whole)
            if self.way.below is not None:
                t = numerics.scores(halves, scale[0], scale[1])[:, first:]
                _, total = numerics.row_probabilities(t, numerics.row_max(t, seen[:, first:]), seen[:, first:])
                takes = total > (1 << 20) / self.way.below
                self.counted += len(takes), int(takes.sum())
                limited = np.where(old, exact_matmul(query, np.minimum(keys, MOST).T), whole)
                halves = np.where(takes[:, None], limited, halves)
            whole = halves
        return numerics.scores(whole, scale[0], scale[1])

    @staticmethod
    def _lost(t: np.ndarray, values: np.ndarray, old: np.ndarray, seen: np.ndarray, first: int) -> np.ndarray:
        """What lower halves of old values would have added to contexts, about; their rise is rounded apart."""
        octave, _ = numerics.octave_max(t[:, first:], seen[:, first:])
        probabilities, _ = numerics.row_probabilities(t[:, first:], octave, seen[:, first:])
        lower = (numerics.halved(values).astype(np.int64) - values)[first:]
        _, rise = numerics.octave_max(t[:, :first], seen[:, :first], octave)
        return exact_matmul(np.where(old[:, first:], probabilities, 0), lower) >> rise[:, None]


def _dense(kind: str) -> np.ndarray:
    """Losses of a kind's first window with 8 bits."""
    found: list[list[float]] = json.loads((RESULTS / "pruning.json").read_text())["dense"][kind]
    return np.array(found[0])


def _worse(network: Network, schedule: Pruning | None, interpreter: type[IntegerInterpreter]) -> Record:
    """Perplexity over that with 8 bits, by kind and in all."""
    own = schedule or Pruning(keep=1.0, whole=1 << 16, every=1 << 16)
    worse = {kind: losses(network, some[0], own, OBSERVED, interpreter=interpreter).nats - _dense(kind)
             for kind, some in windows().items()}
    every = list(worse.values())
    return {"perplexity": _more(every), f"from_{HALF}": _more([part[HALF:] for part in every]),
            **{kind: _more([part]) for kind, part in worse.items()}}


def _more(differences: list[np.ndarray]) -> float:
    """Share by which perplexity rises."""
    return float(np.exp(np.mean([part.mean() for part in differences])) - 1)


def uniform(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` way by way."""
    network, rows = load_model(model_path("int8")).network, record.setdefault("uniform", [])
    for name, way in WAYS.items():
        if any(row["bits"] == name for row in rows):
            continue
        Halving.way, Halving.counted[:] = way, 0
        found = _worse(network, None, Halving)
        every, taken = Halving.counted.tolist()
        rows.append({"bits": name, "rows_with_all_bits": taken / every if every else None, **found, **asdict(way)})
        save()
    show("perplexity over that of 8 bits, all old rows with 4", rows)


def chosen(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` schedule by schedule."""
    network, rows = load_model(model_path("int8")).network, record.setdefault("chosen", [])
    for name, schedule in CHOSEN.items():
        if any(row["schedule"] == name for row in rows):
            continue
        rows.append({"schedule": name, **_worse(network, schedule, IntegerInterpreter), **asdict(schedule)})
        save()
    show("perplexity over that of 8 bits, by schedule", rows)


def cycles(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` cache by cache."""
    config = Config.model_validate(load_config("base").model_dump() | {"name": "base-long-lists", **LISTS})
    rows, made = record.setdefault("cycles", []), dict[tuple[Any, ...], Placed]()
    for name, schedule in TIMED.items():
        for context in CONTEXTS:
            if any((row["context"], row["cache"]) == (context, name) for row in rows):
                continue
            own = (schedule.four, schedule.halves) if schedule else ()
            if own not in made:
                made[own] = pair_of("int8").target(config, 0, pruning=schedule)
            found = token_cycles(made[own], schedule, context)
            spared = schedule.spared(context, 2) / 2 if schedule else 0  # of a row's two bytes, keys and values
            rows.append({"context": context, "cache": name, "kv_bytes": (found.rows - spared) / context,
                         "pass": found.passing, "selection": found.selection, "every": found.every})
            save()
    rows.sort(key=lambda row: (row["context"], list(TIMED).index(row["cache"])))
    save()
    show(f"a pass of SmolLM2 on {config.name}", rows)


PARTS = {"uniform": uniform, "chosen": chosen, "cycles": cycles}


def main() -> None:
    run_part(__doc__, PARTS, "halves", {"model": "smollm2", "weights": "int8"})


if __name__ == "__main__":
    main()
