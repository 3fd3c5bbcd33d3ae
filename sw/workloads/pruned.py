"""How well a network with a pruned cache predicts a text, by the integer interpreter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Graph, IntegerInterpreter, Network, Rows
from gemmule.sw.decoding.asking import alone
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.kv.chosen_pages import PagesKV
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.kv.selected import SelectedKV
from gemmule.sw.kv.values import ValuesKV
from gemmule.sw.step import Want

__all__ = ["Losses", "Untimed", "losses", "pruned_cache"]

BLOCK = 128
"""Rows whose logits are held at a time where nothing is pruned."""


@dataclass(frozen=True)
class Untimed:
    """What decoding asks of a program, where none is run."""

    graph: Graph
    max_rows: int = 1 << 16
    batch: int = 1
    lends: None = None
    pool: int = 0

    @property
    def max_positions(self) -> int:
        return self.graph.whole_positions


@dataclass(frozen=True)
class Losses:
    """Of one window of text."""

    nats: np.ndarray
    """Of each token behind the first, float64 [tokens - 1]."""
    seen: float
    """Cached rows that a row sees, over those of the whole cache: the mean over rows, selecting passes left out."""
    dropped: float
    """Share of the probability that rows had which a selection left out: the mean over selections. Where nothing is
    selected, that of the values which it was too small to meet."""


def pruned_cache(model: InterpretedModel, pruning: Pruning, observed: int,
                 chooser: type[InterpretedChooser] = InterpretedChooser) -> SelectedKV | PagesKV | ValuesKV:
    """A cache of an untimed model by a schedule; ``observed``: rows of a selecting pass, of which there are as many as
    it takes where they count. Of pages the model's rows choose themselves.
    """
    if pruning.pages:
        return PagesKV(model, pruning.pages, model.room)
    if pruning.values and not pruning.selects:
        return ValuesKV(model, pruning.values, model.room)
    return SelectedKV(model, chooser(model, pruning, pruning.counts or observed), pruning, model.room)


def losses(network: Network, window: np.ndarray, pruning: Pruning | None, observed: int,
           chooser: type[InterpretedChooser] = InterpretedChooser,
           interpreter: type[IntegerInterpreter] = IntegerInterpreter) -> Losses:
    """What the tokens of a window cost, int64 [tokens]; no ``pruning``: with the whole cache. ``interpreter``: what
    computes them.
    """
    graph = network.graph
    model = InterpretedModel(TARGET, network, Untimed(graph), None,  # type: ignore[arg-type]
                             pages=pruning.pages if pruning else None,
                             values=pruning.values or 1 if pruning else 1,
                             below=(pruning.progressive or 0.0) if pruning else 0.0)
    model.interpreter = interpreter(network, model.interpreter.pages, model.interpreter.values,
                                    model.interpreter.below)
    kv = pruned_cache(model, pruning or Pruning(keep=1.0, whole=1 << 16, every=BLOCK), observed, chooser)
    ids, nats, shares, at = window.tolist(), [], [], 0
    while at < len(ids) - 1:
        alone(kv.begin(ids[:at + 1]))
        tokens = ids[at:min(len(ids) - 1, at + 1 + min(BLOCK, kv.ahead(at)))]
        shares += [_seen(kv, i) / (at + i) for i in range(len(tokens)) if at + i]
        out = alone(kv.candidates(Rows.chain(tokens, at), Want(logits=True)))
        alone(kv.accept(tokens, range(len(tokens))))
        assert out.logits is not None
        nats.append(_nats(out.logits * model.logit_scale, np.array(ids[at + 1:at + 1 + len(tokens)])))
        at += len(tokens)
    dropped = getattr(kv.chooser, "dropped", []) if isinstance(kv, SelectedKV) else []
    every, met = model.interpreter.mass.tolist()
    return Losses(np.concatenate(nats), float(np.mean(shares)),
                  float(np.mean(dropped)) if dropped else 1 - met / every if every else 0.0)


def _seen(kv: ContiguousKV, i: int) -> int:
    """Cached rows that the row ``i`` behind the cached ones sees, those of its pass before it among them."""
    return kv.pages.rows(kv.length + i + 1) - 1 if isinstance(kv, PagesKV) else kv.length + i


def _nats(logits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    largest = logits.max(axis=1)
    found: np.ndarray = (np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest
                         - logits[np.arange(len(logits)), tokens])
    return found
