"""Rows beside the candidates, in the last layers of the pass that verifies, guess what follows (Speculative Streaming).

Bhendawade et al. 2024. A pass goes in two launches. The first takes the candidates through the layers before the
streams; the exit behind these, through the target's own norm and head, tells how likely each candidate is behind its
parent. The second takes them through the last layers, beside streams: stream ``j`` of a candidate stands ``1 + j``
positions behind it, sees what it sees, itself and the streams before it, and answers which token follows there. So the
pass that accepts a candidate has the next step's drafts, and no pass drafts.

A launch has so many rows. Streams go to the candidates behind which the text most likely goes on as no other candidate
says, ``--streaming-streams`` at most each. Where rows run short, subtrees that the exit takes for unlikely are dropped
before the second launch (the paper's pruning), and streams take their rows. What is dropped is not accepted, so the
text stays that of `ar`: the pending token's row is never dropped, and its answer is the target's own.

A stream does not know which tokens stand before it, so a step's tree has at each depth the same candidates, whatever
they stand behind; it takes the paths with the largest products of chances (``--streaming-top`` candidates a position).
Where a candidate without streams of its own is accepted, those of the nearest one before it serve, as far as they
reach. The first step behind a prompt has no drafts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import exp
from typing import TYPE_CHECKING

from gemmule.sw.decoding.adaptive.worth import Worth
from gemmule.sw.decoding.candidates.branches import grow
from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:

    from gemmule.compiler.ir import Rows
    from gemmule.config import Host
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.models.drafting.tuned import Streams
    from gemmule.sw.step import Asking, Forward, TopK, Want

__all__ = ["METHOD", "Streaming"]

WIDEST = 16
"""Logits of a row that its chances are of."""
FADES = 0.6
"""What a stream is taken to be worth of the one before it, until streams have been accepted."""
DROPPED = -1
"""In the place of the token of a dropped candidate: the target never says it."""
Guesses = list[list[tuple[int, float]]]
"""By position the likeliest tokens, each with its chance."""


class Streaming(Drafter):
    """Drafts with the streams of the pass before."""

    def __init__(self, streams: Streams, most: int, *, count: int, top: int, layers: int, scale: float,
                 host: Host | None = None) -> None:
        """``most``: candidates of a step; ``count``: streams of a candidate; ``top``: candidates of a position;
        ``layers``: of the target; ``scale``: of its logits.
        """
        from gemmule.config import Host

        self.host = host or Host()
        self.streams, self.most, self.top, self.layers, self.scale = streams, most, top, layers, scale
        self.count = min(count, len(streams.tokens))
        self.worth = Worth(self.host.launch_cycles, self.host.step_cycles)
        self.turn = object()
        self.tree = Tree([0], [-1])
        self.dropped: frozenset[int] = frozenset()
        """Nodes of the last tree."""
        self.guesses: dict[int, Guesses] = {}
        """By node, what its streams said."""
        self.next: Guesses = []

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self.turn, self.next = object(), []

    def propose(self, ids: list[int], budget: int) -> Tree:
        most = min(self.most, budget)
        follow = partial(self._behind, self.next)
        self.tree = self.worth.chosen(lambda count: grow(ids[-1], count, 0, follow), most, 0).tree if most > 0 \
            else Tree.chain(ids[-1], [])
        return self.tree

    @staticmethod
    def _behind(guesses: Guesses, depth: int) -> list[tuple[int, float, int]]:
        return [(token, chance, depth + 1) for token, chance in guesses[depth]] if depth < len(guesses) else []

    def answers(self, cached: TextKV, rows: Rows, want: Want) -> Asking[Forward]:

        from gemmule.sw.kv.depths import DepthKV
        from gemmule.sw.step import Ask, LayerRange, Want

        first, nodes, length = self.streams.first, len(rows), cached.length
        exits = nodes > 1
        early: Forward = yield Ask(
            cached.model, rows, Want(last=None if exits else 0, top=WIDEST if exits else 0, hidden=(first,), place=0),
            DepthKV(cached, length, self.turn), (LayerRange(first=0, count=first),))
        left, hosts = self._shared(self._chances(early.top), self._room(cached, rows))
        mixed, places = self._beside(rows, left, hosts)
        wanted = replace(want, last=None, top=max(want.top, WIDEST if hosts else 0))
        late: Forward = yield Ask(cached.model, mixed, wanted, DepthKV(cached, length, self.turn),
                                  (LayerRange(first=first, count=self.layers - first),))
        cached.append(len(mixed))
        self.dropped = frozenset(range(nodes)) - frozenset(left)
        self.guesses = {node: [self._ranked(late.top, place) for place in at] for node, at in places.items()}
        return replace(late.part(slice(0, nodes), slice(0, nodes)), results=(*early.results, *late.results))

    def verified(self, tree: Tree) -> Tree:
        tokens = [DROPPED if node in self.dropped else token for node, token in enumerate(tree.tokens)]
        return replace(tree, tokens=tokens) if self.dropped else tree

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.worth.take(len(out.argmax), out.cycles)
        self.next = next((self.guesses[node][behind:] for behind, node in enumerate(reversed(path))
                          if node in self.guesses), [])

    def _room(self, cached: TextKV, rows: Rows) -> int:
        """Rows of the second launch; no stream stands behind the context."""
        if int(rows.positions.max()) + self.count >= cached.model.room:
            return len(rows)
        return min(cached.model.program.max_rows, cached.model.room - cached.length)

    def _chances(self, top: TopK | None) -> list[float]:
        """By node, how likely the exit takes it behind its parent; that of the pending token is 1."""
        if top is None:
            return [1.0]
        found = [1.0]
        for token, parent in zip(self.tree.tokens[1:], self.tree.parent[1:]):
            logits = top.logits[parent].tolist()
            weights = [exp((logit - logits[0]) * self.scale) for logit in logits]
            tokens = top.tokens[parent].tolist()
            found.append(weights[tokens.index(token)] / sum(weights) if token in tokens else 0.0)
        return found

    def _shared(self, chances: list[float], room: int) -> tuple[list[int], dict[int, int]]:
        """Nodes that stay, and how many streams which of them get.

        Rows go to what is worth most: a node as much as the chance that it is accepted, its streams as much as that
        the path ends with it, each less than the one before.
        """
        accepted = [1.0] * len(chances)
        ends = [1.0] * len(chances)
        for node, parent in enumerate(self.tree.parent[1:], 1):
            accepted[node] = accepted[parent] * chances[node]
            ends[parent] -= chances[node]
        worth = [(accepted[node], 1, -node, 0) for node in range(1, len(chances))]
        worth += [(accepted[node] * max(0.0, ends[node]) * FADES ** (1 + stream), 0, -node, stream)
                  for node in range(len(chances)) for stream in range(self.count)]
        left, hosts = [0], dict[int, int]()
        for _, is_node, node, stream in sorted(worth, key=lambda one: (-one[0], -one[1], -one[2], one[3])):
            if len(left) + sum(hosts.values()) == room:
                break
            if is_node:
                left.append(-node)
            else:
                hosts[-node] = stream + 1
        left.sort()
        kept = set(left)
        return left, {node: count for node, count in hosts.items() if node in kept}

    def _beside(self, rows: Rows, left: list[int], hosts: dict[int, int]) -> tuple[Rows, dict[int, list[int]]]:
        """Rows of the second launch, nodes in their places, and by node the places of its streams."""
        import numpy as np

        from gemmule.compiler.ir import Rows

        nodes, kept = len(rows), set(left)
        wanted = [(node, stream) for node, count in hosts.items() for stream in range(count)]
        free = [node for node in range(nodes) if node not in kept]
        # places of dropped nodes first, then those behind; what no stream takes keeps its node, which nobody reads
        taken = [*free, *range(nodes, nodes + len(wanted))][:len(wanted)]
        size = max([nodes, *(place + 1 for place in taken)])
        tokens, positions = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        mask, slots = np.eye(size, dtype=bool), np.full(size, -1, dtype=np.int64)
        tokens[:nodes], positions[:nodes], mask[:nodes, :nodes] = rows.tokens, rows.positions, rows.mask
        slots[:nodes] = np.arange(nodes)
        places: dict[int, list[int]] = {}
        for (node, stream), place in zip(wanted, taken):
            before = places.setdefault(node, [])
            tokens[place], positions[place] = self.streams.tokens[stream], rows.positions[node] + 1 + stream
            mask[place] = False
            mask[place, :nodes] = rows.mask[node]
            mask[place, [*before, place]] = True
            slots[place] = -1
            before.append(place)
        return Rows(tokens=tokens, positions=positions, sequences=np.zeros(size, dtype=np.int64),
                    mask=mask).entering(slots), places

    def _ranked(self, top: TopK | None, place: int) -> list[tuple[int, float]]:
        """The likeliest tokens that a row says, with their chances."""
        assert top is not None
        logits = top.logits[place].tolist()
        weights = [exp((logit - logits[0]) * self.scale) for logit in logits]
        return [(token, weight / sum(weights))
                for token, weight in zip(top.tokens[place].tolist(), weights)][:self.top]


def _make(request: Request) -> Streaming:
    program, options = request.target.program, request.options
    if request.streams is None:
        raise InputError("--method streaming needs a target that was tuned with streams: take --model tuned, or "
                         "another --method")
    return Streaming(request.streams, request.lengths.most(), count=options["streaming_streams"],
                     top=options["streaming_top"], layers=program.graph.layers, scale=request.target.logit_scale,
                     host=request.host)


METHOD = Method(
    name="streaming", says="rows beside the candidates, in the target's last layers, guess what follows: one model",
    cuts="no passes: those that verify draft",
    source="Bhendawade et al. 2024, Speculative Streaming (arXiv 2402.11131)",
    make=_make, needs_general=True, scheduled=False, needs_streams=True, wide=True,
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        Option(name="--streaming-streams", limits=Range(1, 8, "rows"), default=5,
               help="Streams of a candidate, at most: positions that they guess ahead."),
        Option(name="--streaming-top", limits=Range(1, 8, "tokens"), default=4,
               help="Candidates of a position: the stream's largest logits.")))
