"""Hierarchical self-drafting: the target drafts in a small cache of retrieved rows, and its whole cache verifies.

TriForce (Sun et al. 2024, arXiv 2404.11912). Behind long texts attention takes much of a pass, so the target is a
cheap draft for itself where it reads few rows. Below it stands a still cheaper drafter: a draft model that keeps the
first and the newest rows (StreamingLLM), or what followed in the text before. Each level verifies the one below by the
rule of the text, so a token of the middle level has exactly the law of the target with the small cache, by which the
last level weighs it. (The reference code draws behind a rejected token of the middle level by that law and not by what
is left of it, and so is not lossless.)

With ``--lowest-drafter none`` the target drafts alone (MagicDec, Sadhukhan et al. 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.decoding.methods.suffix import Suffix, Texts
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.decoding.verify import Rule
    from gemmule.sw.kv.drafting import DraftingKV
    from gemmule.sw.kv.pruning import Pruning
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.step import Asking, Forward

__all__ = ["METHOD", "Nothing", "TriForce", "schedule"]

SHARE, LEAST = 32, 64
"""Rows of the small cache where no option says how many: so small a share of the target's positions, 4,096 of 124,928
in the paper, and at least so many."""
CHUNK = 8
"""Rows of a chunk, as published."""
DEPTH = 24
"""Of the tree of runs of the lowest level."""


class Nothing(Drafter):
    """A lowest level that proposes nothing: the middle one drafts token by token."""

    def propose(self, ids: list[int], budget: int) -> Tree:
        return Tree.chain(ids[-1], [])


class TriForce(Paced):
    """Drafts with the target in a small cache, in which a lower drafter's proposals are verified."""

    def __init__(self, whole: TextKV, small: DraftingKV, lowest: Drafter, lengths: Lengths | int, rule: Rule,
                 host: Host | None = None, *, lowest_drafts: int) -> None:
        """``whole``: the target's cache of the text; ``small``: what is retrieved of it; ``rule``: of the text;
        ``lowest_drafts``: tokens that ``lowest`` proposes for a pass of the middle level, at most.
        """
        super().__init__(lengths, host)
        self.whole, self.small, self.lowest, self.lowest_drafts = whole, small, lowest, lowest_drafts
        self.rule, self.middle = rule, rule.drafting()
        self.passes = 0
        """Of the middle level."""
        self._dropped = 0

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None]:
        self._dropped = dropped
        asking = self.lowest.begin(ids, dropped)
        if asking is not None:
            yield from asking

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        """The middle level generates behind the text, as the target does behind it with the answers."""
        count, drafted, cycles = min(self.lengths.most(), budget), list[int](), 0
        weights: list[Any] = []
        if count and self.whole.length == len(ids) - 1:  # a cache of which rows are gone is not copied
            self.small.follow(ids)
            goes_on = True
            while goes_on and len(drafted) < count:
                out, chosen = yield from self._pass(ids + drafted, count - len(drafted))
                drafted += [token for token, _, _ in chosen]
                weights += [drawn for _, drawn, _ in chosen]
                goes_on = all(self.lengths.goes_on(confidence) for _, _, confidence in chosen)
                cycles += out.cycles + self.host.launch_cycles
        self.drafted = len(drafted)
        if drafted:
            self.costs.draft = cycles // len(drafted)
        return Tree.chain(ids[-1], drafted, weights)

    def _pass(self, text: list[int], most: int) -> Asking[tuple[Forward, list[tuple[int, Any, float]]]]:
        """A step of the middle level: the answers, and up to ``most`` tokens, each with what it was drawn by and how
        likely the likeliest one was.
        """
        position = self._dropped + len(text)
        tree = Tree.chain(text[-1], [])
        if most > 1:
            proposed = self.lowest.propose(text, min(self.lowest_drafts, most - 1))
            tree = proposed if isinstance(proposed, Tree) else (yield from proposed)
        out = yield from self.small.candidates(
            tree.rows(len(text) - 1), self.middle.want(None, self.lengths.needs_confidence))
        path, new = self.middle.verify(tree, out, self.small.model.logit_scale, position)
        yield from self.small.accept([tree.tokens[node] for node in path], path)
        self.passes += 1
        found = []
        for i, (node, token) in enumerate(zip(path, new, strict=True)):
            row = slice(node, node + 1)
            by = self.middle.propose(out.part(row, row), self.small.model.logit_scale, position + i)
            found.append((token, by.weights, by.confidence))
        return out, found

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        super().observe(out, path, new)
        self.lowest.observe(out, path, new)


def schedule(options: Mapping[str, Any], positions: int) -> Pruning:
    """What the small cache holds of a target with so many positions, by the method's options.

    Raises:
        InputError: fewer rows than are always kept.
    """
    from gemmule.sw.kv.pruning import Pruning

    keep = options["cache_budget"] or max(LEAST, positions // SHARE)
    first, last = options["cache_sinks"], options["cache_window"]
    if keep < first + last:
        raise InputError(f"--cache-budget must be at least --cache-sinks + --cache-window = {first + last} rows, not "
                         f"{keep}: raise it, or lower one of these")
    score = {"attention": "attention", "chunks": "chunks", "window": "none"}[options["retrieve"]]
    return Pruning(keep=keep, every=options["retrieve_every"], first=first, last=last, whole=keep, score=score,
                   page=CHUNK)


def _lowest(request: Request, rule: Rule) -> tuple[Drafter, int]:
    """The lowest level, and how many tokens it proposes at most.

    Raises:
        InputError: a draft model that is not there, or one that keeps too few rows.
    """
    options, model = request.options, request.draft
    kind, drafts = options["lowest_drafter"] or ("suffix" if model is None else "draft"), options["lowest_drafts"]
    if kind == "draft":
        if model is None:
            raise InputError("--lowest-drafter draft needs a draft model: give --draft-model FILE, or take suffix, pld "
                             "or none")
        from gemmule.sw.kv.sinks import SinksKV

        try:
            cache = SinksKV(model, model.room, sinks=options["cache_sinks"], most=options["lowest_cache_budget"])
        except ValueError as error:
            raise InputError(f"--lowest-cache-budget: {error}: raise it, or lower --cache-sinks") from None
        return DraftModel(model, drafts or 1, rule, request.host, cache=cache), drafts or 1
    drafts = drafts or DRAFTS.high
    if kind == "suffix":
        return Suffix(Texts(DEPTH), drafts, form="path"), drafts
    return (PromptLookup(drafts, request.ends, request.host) if kind == "pld" else Nothing()), drafts


def _make(request: Request) -> TriForce:
    from gemmule.sw.kv.drafting import DraftingKV

    if request.chooser is None:
        raise InputError("--method triforce needs a second cache of the target's: make the session for it")
    if not request.kept:
        raise InputError("--method triforce retrieves cached rows, of which --kv-cache none keeps none: drop one of "
                         "the two")
    target, rule = request.target, request.rule
    small = DraftingKV(target, request.chooser, schedule(request.options, target.room), target.room)
    lowest, drafts = _lowest(request, rule.drafting())
    return TriForce(request.cache, small, lowest, request.lengths, rule, request.host, lowest_drafts=drafts)


METHOD = Method(
    name="triforce", make=_make, needs_general=True, verify="rejection", labels=(DRAFT,), schedule=schedule,
    cuts="length: the target drafts behind few cached rows",
    source="Sun et al. 2024, TriForce (arXiv 2404.11912)",
    says="hierarchical self-drafting, where the target drafts in a small cache of retrieved rows, with a drafter below",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=6, help="Tokens drafted per step."),
    options=(
        Option(name="--cache-budget", limits=Range(16, 1 << 16, "rows"), help="Rows in which the target drafts.",
               otherwise=f"a {SHARE}nd of the target's positions, at least {LEAST}"),
        Option(name="--retrieve", limits=("attention", "chunks", "window"), default="attention",
               help=f"Which rows these are: those that the last rows attend to, by KV head (attention); chunks of "
                    f"{CHUNK} whose mean key meets the last row's query (chunks); or the first and the newest ones "
                    "(window)."),
        Option(name="--retrieve-every", limits=Range(1, 1 << 16, "tokens"), default=256,
               help="Tokens from one retrieval to the next."),
        Option(name="--cache-sinks", limits=Range(0, 255, "rows"), default=16,
               help="First rows that are always among them, and that a draft model keeps."),
        Option(name="--cache-window", limits=Range(1, 255, "rows"), default=16,
               help="Newest rows that are always among them."),
        Option(name="--lowest-drafter", limits=("draft", "suffix", "pld", "none"),
               otherwise="draft, or suffix without a draft model",
               help="What drafts for the target in the small cache: a draft model, suffix decoding, prompt lookup, or "
                    "nothing."),
        Option(name="--lowest-drafts", limits=DRAFTS, help="Tokens that it proposes at a time.",
               otherwise="1 of a draft model, else as many as the step has left"),
        Option(name="--lowest-cache-budget", limits=Range(8, 1 << 16, "rows"), default=256,
               help="Rows that a draft model keeps of the text.")))
