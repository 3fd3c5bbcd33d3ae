"""Faults of published code, planted in our loop: the tests that compare with autoregressive decoding find each.

Two stand with the tests of their law: a drawn draft that is dropped because of its own chance, and TriForce's inner
loop, which draws by the whole law behind a rejection (test_sampling, test_triforce). Here are Medusa's padding and
lookahead's lost and repeated tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.sw.decoding.generate import Conversation, generate
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.lookahead import Lookahead
from gemmule.sw.decoding.methods.ngram import NGram
from gemmule.sw.decoding.methods.suffix import Suffix, Texts
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.decoding.verify import GREEDY, Greedy, Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.kv.text import TextKV
from gemmule.sw.step import Asking, Forward

from .test_sampling import Law, hashed

TINY = load_config("tiny")
PROMPT, NEW, VOCABULARY, SEED = [2, 1], 50, 4, 20261127
Row = Callable[[list[int]], np.ndarray]


def drawn(prefix: list[int]) -> np.ndarray:
    """Random logits by the whole prefix, so that no text loops."""
    return np.random.default_rng([SEED, *prefix]).integers(-900, 900, VOCABULARY).astype(np.int16)


def without_0(prefix: list[int]) -> np.ndarray:
    """The same logits, but that token 0 is never the largest."""
    found = drawn(prefix)
    found[0] = -1000
    return found


MODELS: dict[str, Row] = {"token 0 is one like others": drawn, "token 0 never comes": without_0}


def text(row: Row, drafter: Drafter, rule: Rule = GREEDY) -> Generation:
    return generate(Law(row), drafter, PROMPT, NEW, Ledger(TINY), rule=rule)  # type: ignore[arg-type]


# -- Medusa: shorter paths are padded with node -1, whose candidate is token 0 and whose answer is the last row's

class Uneven(Drafter):
    """Trees of paths of two and of four candidates, the text's own next tokens on the shorter one."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def propose(self, ids: list[int], budget: int) -> Tree:
        right = [*ids]
        while len(right) < len(ids) + 2:
            right.append(int(self.row(right).argmax()))
        first, second = right[len(ids):]
        other = 1 + first % (VOCABULARY - 1)
        return Tree([ids[-1], first, second, other, other, other, other][:budget + 1],
                    [-1, 0, 1, 0, 3, 4, 5][:budget + 1])


class Padded(Greedy):
    """The published rule: all paths are as long as the longest, and the first one of the most matches is taken."""

    def verify(self, tree: Tree, out: Forward, scale: float, position: int) -> tuple[list[int], list[int]]:
        paths = []
        for leaf in (node for node in range(len(tree.tokens)) if node not in tree.parent):
            path = [leaf]
            while path[0]:
                path.insert(0, tree.parent[path[0]])
            paths.append(path)
        longest = max(map(len, paths))
        tokens, answers = [*tree.tokens, 0], [*out.argmax, out.argmax[-1]]  # -1: the padding
        best: list[int] = []
        for path in paths:
            padded = [*path, *[-1] * (longest - len(path))]
            kept = 1
            while kept < longest and tokens[padded[kept]] == answers[padded[kept - 1]]:
                kept += 1
            if kept > len(best):
                best = padded[:kept]
        return best, [answers[node] for node in best]


@pytest.fixture
def padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The padding counts as token 0 of the text; its row is copied from the slot before the pending token's."""
    accept = TextKV.accept

    def padded(self: TextKV, tokens: Sequence[int], path: Sequence[int]) -> Asking[None]:
        return accept(self, [0 if node < 0 else token for token, node in zip(tokens, path)], path)

    monkeypatch.setattr(TextKV, "accept", padded)


@pytest.mark.parametrize("name", MODELS)
def test_uneven_trees_give_the_text(name: str) -> None:
    row = MODELS[name]
    plain, found = text(row, Autoregressive()), text(row, Uneven(row))
    assert found.tokens == plain.tokens
    assert len(found.steps) < len(plain.steps) / 2
    assert (0 in plain.tokens) == (row is not without_0)


@pytest.mark.usefixtures("padding")
def test_padding_that_counts_as_token_0_changes_the_text() -> None:
    assert text(drawn, Uneven(drawn), Padded()).tokens != text(drawn, Autoregressive()).tokens


@pytest.mark.usefixtures("padding")
def test_padding_does_no_harm_where_token_0_never_comes() -> None:
    """So the comparison above finds the padding, and nothing else of the published rule."""
    assert text(without_0, Uneven(without_0), Padded()).tokens == text(without_0, Autoregressive()).tokens


# -- lookahead: the last token of an n-gram and the one behind it are lost

NGRAM = 4


class Lost(Greedy):
    """Counts a match only up to the token before the n-gram's last one."""

    def verify(self, tree: Tree, out: Forward, scale: float, position: int) -> tuple[list[int], list[int]]:
        path, new = super().verify(tree, out, scale, position)
        return path[:NGRAM - 1], new[:NGRAM - 1]


def looping(prefix: list[int]) -> np.ndarray:
    """A text of six tokens again and again, each after the one before."""
    return (np.arange(6) == (prefix[-1] + 1) % 6).astype(np.int16)


def test_a_whole_ngram_and_the_token_behind_it_are_kept() -> None:
    """The text is the same with the fault; what a step keeps is not."""
    plain, right, lost = (text(looping, drafter, rule) for drafter, rule in (
        (Autoregressive(), GREEDY), (Lookahead(4, NGRAM, 2, 8), GREEDY), (Lookahead(4, NGRAM, 2, 8), Lost())))
    assert right.tokens == lost.tokens == plain.tokens
    assert max(accepted + 1 for _, accepted in right.steps) == NGRAM
    assert max(accepted + 1 for _, accepted in lost.steps) == NGRAM - 1
    assert len(right.steps) < len(lost.steps)


# -- lookahead's text of its own: of several accepted tokens one is added several times

MAKE: dict[str, Callable[[], Suffix | NGram]] = {"suffix": lambda: Suffix(Texts(24), 7), "ngram": lambda: NGram(7)}


def check_what_is_known(make: Callable[[], Suffix | NGram]) -> None:
    """Behind a text, a drafter that followed it proposes what one proposes that is told the whole of it."""
    drafter, told = make(), make()
    talk = Conversation(Law(hashed(0, 3, 900)), drafter, Ledger(TINY))  # type: ignore[arg-type]
    run = talk.turn(PROMPT, NEW)
    assert any(accepted for _, accepted in run.steps)
    told.begin([*talk.window])
    for last in range(3):
        assert drafter.propose([*talk.window, last], 7) == told.propose([*talk.window, last], 7)


@pytest.mark.parametrize("name", MAKE)
def test_what_was_decoded_is_known_as_it_stands(name: str) -> None:
    check_what_is_known(MAKE[name])


@pytest.mark.parametrize("name", MAKE)
def test_a_repeated_token_in_what_is_known_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the tokens that a step commits the last one, as often."""
    kind = type(MAKE[name]())
    observe = kind.observe

    def repeated(self: Suffix | NGram, out: Forward, path: list[int], new: list[int]) -> None:
        observe(self, out, path, new[-1:] * len(new))  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "observe", repeated)
    with pytest.raises(AssertionError):
        check_what_is_known(MAKE[name])
