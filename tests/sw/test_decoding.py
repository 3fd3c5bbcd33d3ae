"""The loop, on a made-up target: acceptance, stop tokens, limits, rollback. No device."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sw.decoding import methods
from gemmule.sw.decoding.generate import Generation, generate
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.pld import FORMS, PromptLookup, lookup, lookup_original
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.decoding.verify import cut_at_stop, greedy
from gemmule.sw.device.forward import Caches, append_rows
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.step import Forward, Want

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
    lengths: list[int] = field(default_factory=list)
    """Rows of each pass."""

    @property
    def program(self) -> Shape:
        return self.shape

    @property
    def room(self) -> int:
        return self.shape.max_positions

    def next_token(self, prefix: list[int]) -> int:
        value = self.salt
        for token in prefix[-5:]:
            value = (value * 31 + token + 7) % 1009
        return value % VOCABULARY

    def charging(self, ledger: Ledger, name: str = "") -> "FakeModel":
        return self

    def kv(self, sequence: int = 0, *, kept: bool = True) -> ContiguousKV:
        return ContiguousKV(self, self.room, sequence, kept=kept)

    logit_scale: float = 1.0
    loop: None = None

    def forward(self, rows: Rows, want: Want, kv: Caches, layers: object = None) -> Forward:
        position, tokens = int(rows.positions[0]), rows.tokens.tolist()
        assert position <= len(self.cache), "a pass may not leave a hole in the cache"
        assert position + len(tokens) <= self.shape.max_positions
        assert len(tokens) >= 1
        self.passes += 1
        self.lengths.append(len(tokens))
        append_rows(kv, rows)
        before = self.cache[:position]
        self.cache = before + tokens
        chosen = [self.next_token(before + rows.tokens[seen].tolist()) for seen in rows.mask]
        return Forward(chosen if want.last is None else chosen[len(tokens) - want.last:], ())

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
        self.cache = self.cache[:position] + [self.cache[position + node] for node in path]
        return 0


class FixedDrafter(Drafter):
    """Drafts what a function of the committed ids says."""

    def __init__(self, propose) -> None:
        self.function = propose

    def propose(self, ids: list[int], budget: int) -> Tree:
        return Tree.chain(ids[-1], self.function(ids)[:budget])


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
    drafter = DraftModel(draft, gamma)
    seen, _ = run(drafter, 25)
    expected, _ = run(Autoregressive(), 25)
    assert seen.tokens == expected.tokens
    assert 2 in draft.lengths if same else True, "the last draft of a step that was accepted goes along"
    ids = [3, 1, 4, *seen.tokens]
    assert draft.cache[:len(drafter.cache.ids)] == drafter.cache.ids == ids[:len(drafter.cache.ids)]
    assert len(drafter.cache.ids) <= len(ids) - 1


def test_greedy_walks_a_tree() -> None:
    tree = Tree([9, 1, 2, 3, 4], [-1, 0, 0, 2, 3])
    assert greedy(tree, [2, 0, 3, 4, 7]) == ([0, 2, 3, 4], [2, 3, 4, 7])
    assert greedy(tree, [5, 0, 0, 0, 0]) == ([0], [5])


class TreeDrafter(FixedDrafter):
    """Proposes the tree of a function of the committed ids: nodes before the budget ends."""

    def propose(self, ids: list[int], budget: int) -> Tree:
        tree = self.function(ids)
        return Tree(tree.tokens[:budget + 1], tree.parent[:budget + 1])


def bushy(ids: list[int]) -> Tree:
    """Up to seven candidates, the right ones at random places of a random tree."""
    random, right = np.random.default_rng(len(ids)), oracle(ids)
    tokens, parent, depth, follows = [ids[-1]], [-1], [0], [True]
    for node in range(1, 8):
        behind = int(random.integers(node))
        good = follows[behind] and random.random() < 0.6
        tokens.append(right[depth[behind]] if good else int(random.integers(VOCABULARY)))
        parent.append(behind)
        depth.append(depth[behind] + 1)
        follows.append(follows[behind] and tokens[-1] == right[depth[behind]])
    return Tree(tokens, parent)


@pytest.mark.parametrize("new", [1, 2, 12, 30])
def test_trees_give_the_same_text(new: int) -> None:
    expected, _ = run(Autoregressive(), new)
    seen, _ = run(TreeDrafter(bushy), new)
    assert seen.tokens == expected.tokens
    assert new < 12 or len(seen.steps) < new, "some candidates are accepted"


@pytest.mark.parametrize(("parent", "message"), [
    ([-1, -1], "the parent of node 1 must be from 0 to 0, not -1"),
    ([-1, 0, 2], "the parent of node 2 must be from 0 to 1, not 2"),
    ([0, 0], "-1 for the first"), ([-1], "a parent for each of its 2 nodes"),
])
def test_what_is_no_tree(parent: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tree(list(range(max(2, len(parent)))), parent)


def test_the_small_pair_takes_trees() -> None:
    """Two branches from each pending token; the tokens are those without any."""
    config = load_config("edge")
    drafter = TreeDrafter(lambda ids: Tree([ids[-1], 5, 6], [-1, 0, 0]))
    with Session(config) as session:
        expected = generate(session.target, Autoregressive(), [3, 1, 4], 8, Ledger(config)).tokens
        assert generate(session.target, drafter, [3, 1, 4], 8, Ledger(config)).tokens == expected


def test_a_chain_written_as_a_tree_is_taken() -> None:
    expected, _ = run(Autoregressive())
    drafter = TreeDrafter(lambda ids: Tree([ids[-1], *oracle(ids)[:1]], [-1, 0]))
    assert run(drafter)[0].tokens[:12] == expected.tokens


def slow_lookup(ids: list[int], most: int, count: int, ends: frozenset[int]) -> list[int]:
    """As the method is told: longest first, leftmost first, at least one token behind it."""
    for size in range(most, 0, -1):
        for place in range(len(ids)):
            following = ids[place + size:place + size + count]
            if size < len(ids) and ids[place:place + size] == ids[-size:] and following:
                return [token for i, token in enumerate(following) if not ends & set(following[:i + 1])]
    return []


def slow_original(ids: list[int], most: int, count: int, ends: frozenset[int]) -> list[int]:
    """As ``find_candidate_pred_tokens`` of prompt-lookup-decoding has it, without its tensors."""
    for size in range(most, 0, -1):
        windows = [ids[i:i + size] for i in range(len(ids) - size + 1)]
        for place in [i for i, window in enumerate(windows) if window == ids[-size:]]:
            start, end = place + size, place + size + count
            if end <= len(ids) and start < len(ids) - size:
                return ids[start:end]
    return []


SLOW = {"huggingface": slow_lookup, "original": slow_original}


@pytest.mark.parametrize("letters", [1, 2, 3, 8])
@pytest.mark.parametrize("form", FORMS)
def test_lookup_is_the_slow_one(letters: int, form: str) -> None:
    random = np.random.default_rng(letters)
    found = 0
    for _ in range(400):
        ids = random.integers(0, letters, int(random.integers(1, 24))).tolist()
        most, count = int(random.integers(1, 5)), int(random.integers(1, 12))
        ends = frozenset(random.integers(0, letters, int(random.integers(0, 2))).tolist())
        drafted = FORMS[form](ids, most, count, ends)
        assert drafted == SLOW[form](ids, most, count, ends), (ids, most, count, ends)
        found += bool(drafted)
    assert found > 40


def test_the_original_wants_all_tokens_before_the_ngram() -> None:
    text = [7, 1, 2, 5, 7, 1, 2]
    assert lookup(text, 3, 5) == [5, 7, 1, 2]
    assert lookup_original(text, 3, 5) == []
    assert lookup_original(text, 3, 4) == lookup(text, 3, 4)
    assert lookup_original([6, 6, 6], 2, 1) == [6], "the pair begins its own continuation, the single one does not"
    assert lookup_original([3, 1, 9, 8, 2, 1, 3, 1], 2, 3) == [9, 8, 2]
    assert lookup_original([3, 1, 9, 8, 2, 1, 3, 1], 1, 4) == [9, 8, 2, 1]


def test_lookup_takes_the_longest_then_the_leftmost() -> None:
    assert lookup([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 3, 2) == [9, 2]
    assert lookup([7, 3, 5, 2, 3, 8, 2, 3], 3, 9) == [8, 2, 3]
    assert lookup([1, 2, 3, 4], 3, 9) == []
    assert lookup([6, 6, 6], 3, 9) == [6], "the continuation ends with the text"
    assert lookup([4, 5, 1, 9, 4, 5], 3, 9, frozenset({1})) == []


@pytest.mark.parametrize("new", [1, 7, 60])
@pytest.mark.parametrize("form", FORMS)
def test_prompt_lookup_gives_the_same_text(new: int, form: str) -> None:
    shape = Shape(max_positions=90)
    expected, _ = run(Autoregressive(), new, shape=shape)
    seen, _ = run(PromptLookup(7, frozenset(), form=form, most_ngram=2), new, shape=shape)
    assert seen.tokens == expected.tokens
    assert new < 60 or seen.drafted > 0


def test_methods_by_name() -> None:
    """Each is a file; those that nobody else names are found, too."""
    files = {path.stem for path in Path(methods.__file__).parent.glob("*.py")} - {"__init__", "method"}
    assert {method.file for method in METHODS.values()} == files
    assert list(METHODS) == [method.name for method in METHODS.values()]
    assert METHODS["pld"].values({}) == {"prompt_lookup_form": "huggingface", "prompt_lookup_max": 3}
    with pytest.raises(InputError, match="--prompt-lookup-max must be from 1 to 16, not 17"):
        METHODS["pld"].values({"prompt_lookup_max": 17})
    with pytest.raises(InputError, match="method ar has no option prompt_lookup_max"):
        METHODS["ar"].values({"prompt_lookup_max": 2})


def test_cut_at_stop() -> None:
    assert cut_at_stop([4, 5, 6], frozenset({5})) == ([4, 5], True)
    assert cut_at_stop([4, 6], frozenset({5})) == ([4, 6], False)


@pytest.mark.parametrize(("prompt", "message"), [
    ([], "at least one token"), (list(range(40)), "at most 39 tokens, not 40"),
])
def test_prompts_that_do_not_fit(prompt: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(FakeModel(), Autoregressive(), prompt, 4, Ledger(load_config("tiny")))
