"""Several drafters with a chooser: a bandit decides at each step which of them draft (MetaSD; BanditSpec).

Kim et al. 2024; Hou et al. 2025. ``--drafters`` names them. Those that run no model cost a step nothing, so with
``--multi-draft-form merged`` all of these propose at every step, and the bandit decides which of the others drafts
beside them, if any. What they propose is one tree, as SpecInfer (Miao et al. 2024) merges the trees of several small
models: the candidates that are likeliest to be accepted, equal paths counted once. How likely they are is learned for
each drafter from what became of its earlier candidates. With ``chosen`` a step has the candidates of one drafter, as in
the papers on bandits.

The bandit takes what has the most expected tokens a cycle. Tokens are learned from the text's own steps, apart for each
length of the run of last tokens that stood in the text before (:mod:`gemmule.sw.decoding.candidates.bandit`). Cycles
are those of the device: of a pass over as many rows as the drafters have filled, behind the rows that are cached, and
of the drafts themselves. So a draft model that is worth its passes drafts, and stands aside where the text repeats
itself.

A drafter that runs a model drafts as many tokens as pay by its own acceptance (``--draft-lengths cost``). Candidates
that were drawn all stay in the tree, in front of the others; who drafts is decided before anything is drawn, so
rejection sampling is as exact as with one drafter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from gemmule.sw.decoding.adaptive.acceptance import Acceptance
from gemmule.sw.decoding.candidates.bandit import Bandit
from gemmule.sw.decoding.candidates.merging import merged, path_of
from gemmule.sw.decoding.lengths import Constant, Costs, Expected
from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.decoding.methods.suffix import Texts
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import ADAPTIVE_MOST, DRAFTS, Several

if TYPE_CHECKING:
    from gemmule.sw.step import Asking, Forward, Want

__all__ = ["METHOD", "MultiDraft", "Part"]

T = TypeVar("T")
PARTS = Several(("draft", "int4-self", "layerskip", "suffix", "pld", "ngram", "recycling"))
OWN: dict[str, dict[str, Any]] = {"recycling": {"recycling_prompts": "off"}}
"""Options of drafters that differ from their defaults: answers behind all rows of a prompt take longer."""
LONG = 4
"""Tokens of a run of last tokens from which on runs are one context."""
STEP = 64
"""Cached tokens in steps of which costs of passes are looked up."""


@dataclass(eq=False)
class Part:
    """One of the drafters.

    Attributes:
        runs_model: whether its drafts come from passes of a model.
        behind: whether it lacks tokens of the text that it is told of by ``begin`` alone.
    """

    name: str
    drafter: Drafter
    runs_model: bool
    behind: bool = True
    acceptance: Acceptance = field(default_factory=Acceptance)

    def propose(self, ids: list[int], dropped: int, budget: int) -> Asking[Tree]:
        if self.behind:
            yield from _asked(self.drafter.begin(ids, dropped))
            self.behind = False
        tree = yield from _asked(self.drafter.propose(ids, budget))
        return replace(tree, source=f"{self.name} {tree.source}")

    def cycles(self, one: float, parameters: int) -> float:
        """Of its next draft, as the last one took; ``one``: of a pass of the target over one row, with so many weights.
        """
        if not isinstance(self.drafter, Paced) or not self.runs_model:
            return 0.0
        count = self.drafter.lengths.most()
        return count * self.drafter.costs.draft or one * self.drafter.drafting(count) / parameters

    def observe(self, out: Forward, tree: Tree, own: Tree, path: list[int], new: list[int]) -> None:
        """What became of a step; ``tree``, ``path``: as it was verified, ``own``: what it proposed of it."""
        mine = path_of(own, [tree.tokens[node] for node in path[1:len(new) + 1]])
        self.acceptance.observe(own, mine)
        if not isinstance(self.drafter, Paced):  # it learns from all candidates
            self.drafter.trimmed(tree)
            mine = path
        self.drafter.observe(out, mine, new)


class MultiDraft(Drafter):
    """Has some of its drafters propose, as a bandit chooses.

    Attributes:
        arms: the sets of drafters among which it chooses.
        taken: steps by arm.
    """

    def __init__(self, parts: Sequence[Part], most: int, *, merging: bool = True, parameters: int = 1, launch: int = 0,
                 step: int = 0, passing: Callable[[int, int, Want | None], float] | None = None) -> None:
        """``most``: candidates of a step; ``merging``: those without a model always propose; ``parameters``: weights of
        the target; ``launch``, ``step``: cycles of the host; ``passing``: cycles of a pass of the target over so many
        rows behind so many cached ones that gives what is wanted, None: they are taken as seen.
        """
        self.parts, self.most, self.parameters, self.launch = list(parts), most, parameters, launch
        self.passing, self.costs = passing, Costs(step=step)
        free = [part for part in self.parts if not part.runs_model]
        models = [part for part in self.parts if part.runs_model]
        self.arms: list[list[Part]] = [free, *([*free, part] for part in models)] if merging else [
            [part] for part in self.parts]
        self.taken = [0] * len(self.arms)
        self._rows = [float(most)] * len(self.arms)
        """Candidates of a step, about."""
        self.bandit, self.texts = Bandit(len(self.arms)), Texts(LONG + 1)
        self.arm = self._context = self._dropped = 0
        self.tree, self.proposed = Tree.chain(0, []), list[Tree]()

    def want(self) -> Want | None:
        return self._want(self.arm)

    def _want(self, arm: int) -> Want | None:
        found: Want | None = None
        for part in self.arms[arm]:
            wanted = part.drafter.want()
            found = wanted if found is None or wanted is None else found.joined(wanted)
        return found

    def prompt_want(self) -> Want | None:
        wanted = [one for part in self.parts if (one := part.drafter.prompt_want()) is not None]
        return wanted[0] if wanted else None

    def read(self, tokens: list[int], out: Forward) -> None:
        for part in self.parts:
            part.drafter.read(tokens, out)

    def drafting(self, count: int) -> int:
        return max(part.drafter.drafting(count) for part in self.parts)

    def prompt_weights(self) -> int:
        return max(part.drafter.prompt_weights() for part in self.parts)

    def trimmed(self, tree: Tree) -> None:
        self.tree = tree

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        """A drafter begins when it is first asked."""
        self._dropped = dropped
        for part in self.parts:
            part.behind = True

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self.texts.begin(ids)
        runs, most = self.texts.places(ids), min(self.most, budget)
        self._context = runs[0][0] if runs else 0
        self.arm = self.bandit.best(self._context, [self._cycles(arm, len(ids)) for arm in range(len(self.arms))])
        self.proposed = []
        for part in self.arms[self.arm]:
            tree = yield from part.propose(ids, self._dropped, most)
            self.proposed.append(tree)
        if len(self.proposed) == 1:
            self.tree = self.proposed[0]
        else:
            chances = [part.acceptance.of_paths(tree)
                       for part, tree in zip(self.arms[self.arm], self.proposed, strict=True)]
            self.tree = merged([Tree.chain(ids[-1], []), *self.proposed], [[1.0], *chances], most)
        return self.tree

    def _cycles(self, arm: int, tokens: int) -> float:
        """Of a step that takes an arm."""
        rows, cached = round(self._rows[arm]) + 1, tokens // STEP * STEP
        if self.passing is None:
            one, verifying = self.costs.of(1), self.costs.of(rows)
        else:
            wanted = self._want(arm)
            one, verifying = self.passing(1, cached, wanted), self.passing(rows, cached, wanted)
        return verifying + self.costs.step + sum(part.cycles(one, self.parameters) for part in self.arms[arm])

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        taken = self.arms[self.arm]
        for part, own in zip(taken, self.proposed, strict=True):
            part.observe(out, self.tree, own, path, new)
        for part in self.parts:
            if part not in taken and not part.runs_model:  # models' caches find out by themselves
                part.behind = True
        rows = len(self.tree.tokens) - 1
        self.costs.verify[rows + 1] = out.cycles + self.launch
        self._rows[self.arm] += (rows - self._rows[self.arm]) / 4
        self.taken[self.arm] += 1
        self.bandit.observe(self.arm, self._context, len(new))


def _asked(found: Asking[T] | T) -> Asking[T]:
    """What a drafter comes to, whether it asks for it or just says it."""
    return (yield from found) if isinstance(found, Generator) else found


def _named(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Drafters, as they are given."""
    return PARTS.named(options["drafters"]) if options.get("drafters") else ()


def _part(name: str, request: Request) -> Part:
    """One of the drafters, by its own method."""
    from gemmule.sw.decoding.methods import METHODS

    method, most = METHODS[name], request.lengths.most()
    usual = min(int(method.drafts.default or most) if method.drafts else most, most)
    lengths: Constant = Constant(usual)
    if DRAFT in method.labels:
        lengths = Expected(min(ADAPTIVE_MOST, most))
        lengths.now = min(usual, lengths.num_tokens)
    return Part(name, method.make(replace(
        request, lengths=lengths, options=method.values(OWN.get(name, {})),
        memory=request.memory.setdefault(name, {}))), DRAFT in method.labels)


def _make(request: Request) -> MultiDraft:
    names = _named(request.options) or (("draft", "suffix") if request.draft is not None else ("suffix", "recycling"))
    if "draft" in names and request.draft is None:
        raise InputError("--drafters draft needs a draft model: give --draft-model FILE, or leave draft out")
    if "int4-self" in names and request.int4 is None:
        raise InputError("--drafters int4-self needs the target's int4 copy beside it: leave int4-self out")
    curve, plain, host = request.curve, request.rule.want(), request.host

    def passing(rows: int, cached: int, wanted: Want | None) -> float:
        assert curve is not None
        return curve.of(min(rows, curve.model.program.max_rows), cached, plain if wanted is None else plain.joined(
            wanted))

    parts = [_part(name, request) for name in names]
    models = any(part.runs_model for part in parts)
    return MultiDraft(
        parts, request.lengths.most(), merging=request.options["multi_draft_form"] == "merged",
        parameters=request.target.program.graph.parameters if models else 1, launch=host.launch_cycles,
        step=host.step_cycles, passing=None if curve is None else passing)


METHOD = Method(
    name="multi-draft", make=_make, needs_general=True, scheduled=False, labels=(DRAFT,), parts=_named,
    cuts="what the drafters that are chosen cut; a step whose text repeats itself runs no model to draft",
    source="Kim et al. 2024, MetaSD; Hou et al. 2025, BanditSpec (arXiv 2505.15141); Miao et al. 2024, SpecInfer "
           "(arXiv 2305.09781)",
    says="several drafters, of which a bandit chooses who drafts a step, in one tree",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        Option(name="--drafters", limits=PARTS, otherwise="draft,suffix, or suffix,recycling without a draft model",
               help="Methods that draft."),
        Option(name="--multi-draft-form", limits=("merged", "chosen"), default="merged",
               help="Whether drafters without a model always propose, and one with a model beside them in the same "
                    "tree, or a step has the candidates of one.")))
