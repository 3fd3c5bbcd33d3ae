"""Trees of a draft model: how they grow, and that they change no text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmule.compiler.ir import Rows
from gemmule.sw.decoding.candidates import levels
from gemmule.sw.decoding.generate import Conversation, generate
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods import METHODS, draft_tree
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft_tree import DraftTree
from gemmule.sw.decoding.stops import Stops
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.costs.cost_curve import CostCurve
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.step import Asking, Forward

from .test_methods import CONFIG, DRAFT, LENGTHS, PROMPTS, SIZES, Request, model, plain


class Seen(DraftTree):
    """Keeps its trees and what was accepted of them."""

    def __init__(self, *given: object, **options: object) -> None:
        super().__init__(*given, **options)  # type: ignore[arg-type]
        self.trees: list[Tree] = []
        self.paths: list[list[int]] = []

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        tree = yield from super().propose(ids, budget)
        self.trees.append(tree)
        return tree

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.paths.append(path)
        super().observe(out, path, new)


def decode(draft: LoadedModel, new: int = 40, stops: frozenset[int] = frozenset(), **options: object,
           ) -> tuple[Generation, Seen]:
    ledger = Ledger(CONFIG)
    drafter = Seen(draft.charging(ledger, DRAFT), 7, CONFIG.host, **options)
    talk = Conversation(model().charging(ledger), drafter, ledger, Stops(stops))
    return talk.turn(PROMPTS[0], new), drafter


def leftmost(tree: Tree) -> list[int]:
    """The path of the likeliest candidates."""
    path = [0]
    while children := tree.children(path[-1]):
        path.append(children[0])
    return path


SHAPE = ((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0))


@pytest.fixture(params=["grown", "narrow", "static"])
def options(request: pytest.FixtureRequest) -> dict[str, object]:
    return {"grown": {}, "narrow": {"width": 1, "top": 8, "depth": 4},
            "static": {"shape_of": lambda tokens: SHAPE}}[request.param]


def test_a_draft_that_is_the_target_is_always_right(options: dict[str, object]) -> None:
    """Of each tree the likeliest path stays, whichever pass its candidates are from; siblings go along."""
    run, drafter = decode(model(DRAFT), **options)
    assert run.tokens == plain(tuple(PROMPTS[0]), 40, "greedy", "stop").tokens
    for tree, path in zip(drafter.trees, drafter.paths):
        assert path == leftmost(tree)
        assert list(tree.chances) == sorted(tree.chances, reverse=True) or len(set(tree.parent)) < len(tree.parent)
        assert all(tree.chances[node] <= tree.chances[parent] for node, parent in enumerate(tree.parent) if node)
    assert max(len(path) for path in drafter.paths) > 2
    assert any(len(set(tree.parent)) < len(tree.parent) for tree in drafter.trees), "some have siblings"


def test_a_mask_that_shows_siblings_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts of a pass whose rows see each other's branches are other ones: the test above tells."""
    made = levels.rows_of

    def wrong(*given: object) -> Rows:
        rows = made(*given)  # type: ignore[arg-type]
        seen = rows.mask.copy()
        seen[:] = rows.positions[:, None] >= rows.positions[None]
        return replace(rows, mask=seen)

    monkeypatch.setattr(draft_tree, "rows_of", wrong)
    run, drafter = decode(model(DRAFT), shape_of=lambda tokens: SHAPE)
    assert run.tokens == plain(tuple(PROMPTS[0]), 40, "greedy", "stop").tokens, "the text is never wrong"
    assert any(path != leftmost(tree) for tree, path in zip(drafter.trees, drafter.paths))


def test_tokens_that_end_a_text_within_a_tree(options: dict[str, object]) -> None:
    """Any token of the text is taken for the one that ends it."""
    text, within = plain(tuple(PROMPTS[0]), 40, "greedy", "stop").tokens, 0
    for place in (3, 9, 17):
        expected = generate(model(), Autoregressive(), PROMPTS[0], 40, Ledger(CONFIG), frozenset({text[place]}))
        run, drafter = decode(model(DRAFT), 40, frozenset({text[place]}), **options)
        assert (run.tokens, run.finish_reason) == (expected.tokens, "stop")
        within += len(drafter.paths[-1]) > 1 and run.steps[-1][1] > 0
    assert within, "some trees have it before their end"


def test_token_0_is_one_like_others() -> None:
    """Trees have it, and it stands for nothing else."""
    run, drafter = decode(model(DRAFT), 40, width=7, top=8)
    assert any(0 in tree.tokens[1:] for tree in drafter.trees)
    assert run.tokens == plain(tuple(PROMPTS[0]), 40, "greedy", "stop").tokens


def test_the_context_ends_within_a_tree(options: dict[str, object]) -> None:
    for draft in (model(DRAFT), model(DRAFT, 1)):
        run, drafter = decode(draft, 99, **options)
        assert run.finish_reason == "context"
        assert run.tokens == plain(tuple(PROMPTS[0]), 99, "greedy", "stop").tokens
        assert len(drafter.trees[-1].tokens) - 1 < 3
        assert drafter.cache.length < SIZES.positions


def test_drafting_ends_where_it_does_not_pay() -> None:
    """A draft as costly as the target takes few passes; one without a price takes as many as it may."""
    dear, _ = decode(model(DRAFT, 1))
    ledger, host = Ledger(CONFIG), CONFIG.host
    drafter = Seen(model(DRAFT, 1).charging(ledger, DRAFT), 7, host)
    drafter.costs.step = 1 << 40  # beside such a step drafts cost nothing
    free = Conversation(model().charging(ledger), drafter, ledger).turn(PROMPTS[0], 20)
    passes = (dear.ledger.launches[DRAFT] - dear.prefill.launches.get(DRAFT, 0)) / len(dear.steps)
    first = ledger.launches[DRAFT] - free.prefill.launches.get(DRAFT, 0)
    assert passes < 2.5
    assert first / len(free.steps) > passes


def test_a_static_tree_has_its_shape() -> None:
    _, drafter = decode(model(DRAFT), 30, shape_of=lambda tokens: SHAPE)
    tree = drafter.trees[0]
    assert len(tree.tokens) == 1 + len(SHAPE)
    assert [len(tree.children(node)) for node in range(len(tree.tokens))] == [2, 2, 1, 0, 0, 1, 0]


def test_the_shape_follows_from_costs() -> None:
    """By option, on a device whose costs are known; not where they are not."""
    way, target = METHODS["draft-tree"], model()
    def request(curve: CostCurve | None) -> Request:
        return Request(draft=model(DRAFT, 1), target=target, cache=target.kv(), lengths=LENGTHS["constant"](7),
                       ends=frozenset(), rule=GREEDY, host=CONFIG.host, curve=curve,
                       options=way.values({"draft_tree_form": "static"}))

    run = generate(target, way.make(request(CostCurve(target))), PROMPTS[0], 20, Ledger(CONFIG))
    assert run.tokens == plain(tuple(PROMPTS[0]), 20, "greedy", "stop").tokens
    with pytest.raises(InputError, match="--draft-tree-form static takes one text"):
        way.make(request(None))
    with pytest.raises(InputError, match="--method draft-tree needs a draft model"):
        way.make(replace(request(None), draft=None))
