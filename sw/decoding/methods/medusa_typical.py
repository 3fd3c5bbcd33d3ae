"""Medusa's tree, of which whatever is typical is accepted: lossy (Cai et al. 2024, section 2.3.2).

A candidate x behind a path is accepted where the target's probability of it, at ``--typical-temperature``, is more than
``min(epsilon, delta exp(-H))``, with H the entropy of its distribution there: where the target is sure, only its own
choice is; where many tokens would do, any of those that are likely enough. The longest accepted path is kept, of paths
of one length the likelier; behind it stands the target's own greedy choice, so a step never gives less than `ar` does.
The text is another one than that of `ar`. It is checked against a plain reading: each of its tokens is the target's
choice behind those before it, or typical there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gemmule.sw.decoding.methods import medusa
from gemmule.sw.decoding.methods.medusa import Medusa, made
from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Decimals

if TYPE_CHECKING:
    import numpy as np

    from gemmule.compiler.ir import Rows
    from gemmule.sw.decoding.exits.reference import Plain
    from gemmule.sw.decoding.tree import Tree
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.step import Asking, Forward, Want

__all__ = ["METHOD", "TypicalMedusa", "typical"]


def typical(logits: np.ndarray, scale: float, options: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of probabilities, and which tokens are typical  # int [rows, vocab] -> float64, bool [rows, vocab]

    ``real = logit * scale``.
    """
    import numpy as np

    real = logits.astype(np.float64) * (scale / options["typical_temperature"])
    logs = real - real.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    entropy = -(np.exp(logs) * logs).sum(axis=1, keepdims=True)
    least = np.minimum(options["typical_epsilon"], options["typical_delta"] * np.exp(-entropy))
    return logs, np.exp(logs) > least


class TypicalMedusa(Medusa):
    """Accepts typical candidates, for the target's choices behind the nodes."""

    lossless = False
    options: Mapping[str, Any]
    scale: float

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self.tree = yield from super().propose(ids, budget)
        return self.tree

    def trimmed(self, tree: Tree) -> None:
        self.tree = tree

    def answers(self, cached: TextKV, rows: Rows, want: Want) -> Asking[Forward]:
        """The target's pass, in whose answers the children on the best typical path stand for its choices."""
        out = yield from cached.candidates(rows, replace(want, logits=True))
        assert out.logits is not None
        logs, accepted = typical(out.logits, self.scale, self.options)
        best, chosen = (0, 0.0), [0]
        paths = {0: [0]}
        sums = {0: 0.0}
        for node, (token, parent) in enumerate(zip(self.tree.tokens, self.tree.parent)):
            if node and parent in paths and (accepted[parent, token] or token == out.argmax[parent]):
                paths[node], sums[node] = [*paths[parent], node], sums[parent] + float(logs[parent, token])
                if (score := (len(paths[node]), sums[node])) > best:
                    best, chosen = score, paths[node]
        argmax = [*out.argmax]
        for parent, node in zip(chosen, chosen[1:]):
            argmax[parent] = self.tree.tokens[node]
        return replace(out, argmax=argmax)


def _make(request: Request) -> TypicalMedusa:
    if request.target.sampled is None:
        raise InputError("--method medusa-typical needs a session with general=True, whose passes leave hidden rows "
                         "and logits: make one")
    drafter = made(request, "medusa-typical", TypicalMedusa)
    drafter.options, drafter.scale = request.options, request.target.logit_scale
    return drafter


def _policy(plain: Plain) -> list[int]:
    import numpy as np

    from gemmule.sw.device.forward import logit_scale

    layers, rows, stream = plain.begin()
    for layer in range(layers.layers):
        stream = layers.layer(layer, rows, stream, layers.cache(layer))
    index = np.arange(plain.given - 1, len(rows))
    logits = layers.logits(rows.take(index), stream[index])
    _, accepted = typical(logits, logit_scale(plain.network.graph), plain.options)
    plain.layers_run = [layers.layers] * len(index)
    new = [*plain.ids[plain.given:], -1]
    return [token if token >= 0 and accepted[row, token] else int(logits[row].argmax())
            for row, token in enumerate(new)]


METHOD = Method(
    name="medusa-typical", make=_make, trained="medusa", scheduled=False, labels=(DRAFT,),
    needs_general=True, lossless=False, policy=_policy,
    says="Medusa's tree, of which all that is typical is accepted; lossy",
    cuts="layers, as medusa; and passes of the target, as it accepts other texts than its own",
    source="Cai et al. 2024, Medusa (arXiv 2401.10774), section 2.3.2",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        *medusa.OPTIONS,
        Option(name="--typical-temperature", limits=Decimals(0.001, 1000), default=0.7,
               help="Of the probabilities that tell whether a token is typical."),
        Option(name="--typical-epsilon", limits=Decimals(0, 1), default=0.09,
               help="A token that is likelier is typical everywhere."),
        Option(name="--typical-delta", limits=Decimals(0, 1), default=0.3,
               help="Where the entropy H of what may follow is high, a token likelier than this times exp(-H) is.")))
