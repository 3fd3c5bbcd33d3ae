"""The loop, on a made-up target: acceptance, stop tokens, limits, rollback. No device."""

from dataclasses import dataclass, field

import pytest

from gemmule.config import load_config
from gemmule.sw.decoding.drafters import Autoregressive, DraftModel
from gemmule.sw.decoding.generate import Generation, generate
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import cut_at_stop, greedy
from gemmule.sw.ledger import Ledger
from gemmule.sw.runtime import Forward

VOCABULARY = 16


@dataclass
class Shape:
    max_positions: int = 40
    max_rows: int = 8


@dataclass
class FakeModel:
    """Next token = hash of the whole prefix; its cache must hold exactly the committed prefix."""

    salt: int = 0
    shape: Shape = field(default_factory=Shape)
    name: str = "target"
    cache: list[int] = field(default_factory=list)
    passes: int = 0

    @property
    def program(self) -> Shape:
        return self.shape

    def next_token(self, prefix: list[int]) -> int:
        value = self.salt
        for token in prefix[-5:]:
            value = (value * 31 + token + 7) % 1009
        return value % VOCABULARY

    def forward(self, tokens: list[int], position: int, logit_rows: int | None = None) -> Forward:
        assert position <= len(self.cache), "a pass may not leave a hole in the cache"
        assert position + len(tokens) <= self.shape.max_positions
        assert len(tokens) >= 1
        self.passes += 1
        self.cache = self.cache[:position] + list(tokens)
        chosen = [self.next_token(self.cache[:position + i + 1]) for i in range(len(tokens))]
        return Forward(chosen if logit_rows is None else chosen[len(tokens) - logit_rows:], ())


class FixedDrafter:
    """Drafts what a function of the committed ids says."""

    def __init__(self, propose) -> None:
        self.function = propose

    def begin(self, ids: list[int]) -> None:
        pass

    def propose(self, ids: list[int], budget: int) -> Tree:
        return Tree.chain(ids[-1], self.function(ids)[:budget])

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        pass


def run(drafter, new: int = 12, prompt: list[int] | None = None, shape: Shape | None = None,
        stop: frozenset[int] = frozenset()) -> tuple[Generation, FakeModel]:
    target = FakeModel(shape=shape or Shape())
    result = generate(target, drafter, prompt or [3, 1, 4], new, Ledger(load_config("tiny")), stop)
    ids = (prompt or [3, 1, 4]) + result.tokens
    # the cache may hold rejected rows behind the committed ones, but those before are the text itself
    assert target.cache[:len(ids) - 1] == ids[:len(target.cache)][:len(ids) - 1]
    return result, target


def oracle(ids: list[int]) -> list[int]:
    model, text = FakeModel(), list(ids)
    for _ in range(10):
        text.append(model.next_token(text))
    return text[len(ids):]


def sometimes(ids: list[int]) -> list[int]:
    drafted = oracle(ids)
    drafted[len(ids) % 4] = (drafted[len(ids) % 4] + 1) % VOCABULARY
    return drafted


DRAFTERS = {
    "none": lambda ids: [],
    "never": lambda ids: [(t + 1) % VOCABULARY for t in oracle(ids)],
    "always": oracle,
    "sometimes": sometimes,
}


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("new", [1, 2, 3, 7, 12, 30])
def test_equal_to_autoregressive(name: str, new: int) -> None:
    expected, _ = run(Autoregressive(), new)
    seen, _ = run(FixedDrafter(DRAFTERS[name]), new)
    assert seen.tokens == expected.tokens
    assert len(seen.tokens) == new


def test_counts() -> None:
    always, _ = run(FixedDrafter(oracle), 16)
    assert always.steps == [(7, 7), (7, 7)]
    assert always.tokens_per_step == 8
    assert always.acceptance == 1
    never, _ = run(FixedDrafter(DRAFTERS["never"]), 6)
    assert [accepted for _, accepted in never.steps] == [0] * 6
    assert never.acceptance == 0


@pytest.mark.parametrize("name", DRAFTERS)
def test_stop_token_inside_a_block(name: str) -> None:
    """Declare each produced token the stop token in turn: every method must cut at the same place."""
    whole, _ = run(Autoregressive(), 20)
    for stop in sorted(set(whole.tokens)):
        expected = whole.tokens[:whole.tokens.index(stop) + 1]
        seen, _ = run(FixedDrafter(DRAFTERS[name]), 20, stop=frozenset({stop}))
        assert seen.tokens == expected
        assert seen.finish_reason == "stop"


@pytest.mark.parametrize("context", range(4, 14))
@pytest.mark.parametrize("name", DRAFTERS)
def test_context_limit(context: int, name: str) -> None:
    shape = Shape(max_positions=context)
    expected, _ = run(Autoregressive(), 50, shape=shape)
    seen, _ = run(FixedDrafter(DRAFTERS[name]), 50, shape=shape)
    assert seen.tokens == expected.tokens
    assert len(seen.tokens) == context - 3


@pytest.mark.parametrize("gamma", [1, 2, 3, 7])
@pytest.mark.parametrize("same", [True, False])
def test_draft_model_cache_follows_the_text(gamma: int, same: bool) -> None:
    draft = FakeModel(salt=0 if same else 5, name="draft")
    drafter = DraftModel(draft, gamma, Ledger(load_config("tiny")))
    seen, _ = run(drafter, 25)
    expected, _ = run(Autoregressive(), 25)
    assert seen.tokens == expected.tokens
    assert drafter.catch_up_rows > 0 if same else True
    ids = [3, 1, 4, *seen.tokens]
    assert draft.cache[:drafter.kv] == ids[:drafter.kv]
    assert drafter.kv <= len(ids) - 1


def test_greedy_walks_a_tree() -> None:
    tree = Tree([9, 1, 2, 3, 4], [-1, 0, 0, 2, 3])
    assert greedy(tree, [2, 0, 3, 4, 7]) == ([0, 2, 3, 4], [2, 3, 4, 7])
    assert greedy(tree, [5, 0, 0, 0, 0]) == ([0], [5])


class TreeDrafter(FixedDrafter):
    """Proposes the tree of a function of the committed ids."""

    def propose(self, ids: list[int], budget: int) -> Tree:
        return self.function(ids)


@pytest.mark.parametrize(("parent", "node", "found"), [
    ([-1, 0, 0], 2, 0),  # two children of the pending token
    ([-1, 0, 1, 1], 3, 1), ([-1, 0, 1, 0], 3, 0),
    ([-1, -1], 1, -1),  # two roots
])
def test_a_branching_tree_is_refused(parent: list[int], node: int, found: int) -> None:
    """Rows of a pass see all rows before them: a second branch would see the first, and its tokens would be wrong."""
    drafter = TreeDrafter(lambda ids: Tree([ids[-1], *range(1, len(parent))], parent))
    with pytest.raises(ValueError, match="must be a chain") as error:
        run(drafter)
    assert f"parent of node {node} is node {node - 1}" in str(error.value)
    assert f"in which it is {found}:" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_chain_written_as_a_tree_is_taken() -> None:
    expected, _ = run(Autoregressive())
    drafter = TreeDrafter(lambda ids: Tree([ids[-1], *oracle(ids)[:1]], [-1, 0]))
    assert run(drafter)[0].tokens[:12] == expected.tokens


def test_cut_at_stop() -> None:
    assert cut_at_stop([4, 5, 6], frozenset({5})) == ([4, 5], True)
    assert cut_at_stop([4, 6], frozenset({5})) == ([4, 6], False)


@pytest.mark.parametrize(("prompt", "message"), [
    ([], "at least one token"), (list(range(40)), "at most 39 tokens, not 40"),
])
def test_prompts_that_do_not_fit(prompt: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(FakeModel(), Autoregressive(), prompt, 4, Ledger(load_config("tiny")))
