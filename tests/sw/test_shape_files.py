"""Shapes of trees from files: what they mean, what is refused, and that the methods fill them and change no text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmule.sw.decoding.candidates.branches import fill
from gemmule.sw.decoding.candidates.shape_files import Shaped, shape_text
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.lengths import LENGTHS
from gemmule.sw.decoding.methods import DRAFT, METHODS, Request
from gemmule.sw.decoding.methods.draft_tree import DraftTree
from gemmule.sw.decoding.methods.recycling import Recycling
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.step import Asking

from .test_methods import CONFIG, PROMPTS, model, plain

LIMITS = Shaped(15)
SEED = 20261127


def read(path: Path, text: str) -> tuple[tuple[int, ...], ...]:
    path.write_text(text)
    return LIMITS.places("--tree", str(path))


def test_both_forms_are_one_shape(tmp_path: Path) -> None:
    wanted = ((0,), (1,), (0, 0), (0, 1))
    for text in ('paths: [1, "0,1", 0, "0,0"]', "paths:\n- 0\n- 0,0\n- 0,1\n- 1\n", "parents: [0, 1, 1, 0]",
                 "parents: [4, 4, 0, 0]"):  # of the last one, candidate 4 has the children 1 and 2
        places = read(tmp_path / "tree.yaml", text)
        assert len(places) == 4
        if "[4" not in text:
            assert places == wanted
        else:
            assert places == ((0,), (1,), (1, 0), (1, 1))
    assert LIMITS.places("--tree", "0 1 0,0 0,1") == wanted
    assert LIMITS.check("--tree", shape_text(wanted)) == shape_text(wanted)


@pytest.mark.parametrize("seed", range(20))
def test_random_parents_are_the_tree_that_they_say(tmp_path: Path, seed: int) -> None:
    """Numbered at random, with children before parents: depths and numbers of children by an own count."""
    random = np.random.default_rng((SEED, seed))
    count = int(random.integers(1, 16))
    before = [0, *(int(random.integers(0, node)) for node in range(1, count + 1))]
    number = [0, *(1 + random.permutation(count)).tolist()]
    parents = [0] * count
    for node in range(1, count + 1):
        parents[number[node] - 1] = number[before[node]]
    places = read(tmp_path / "tree.yaml", f"parents: {parents}")
    depth = [0] * (count + 1)
    for node in range(1, count + 1):
        depth[node] = depth[before[node]] + 1
    assert sorted(map(len, places)) == sorted(depth[1:])
    for level in range(1, max(depth) + 1):
        families = [before[1:].count(node) for node in range(count + 1) if depth[node] == level - 1]
        found = [sum(place[:-1] == above for place in places)
                 for above in ({()} if level == 1 else {one for one in places if len(one) == level - 1})]
        assert sorted(families) == sorted(found)
    assert LIMITS.places("--tree", shape_text(places)) == places


@pytest.mark.parametrize(("text", "message"), [
    ("paths: [0, 0]", "must name each path once, not 0 twice: drop one"),
    ('paths: [0, "1,0"]', "must have the parent 1 of 1,0: add it, or drop 1,0"),
    ("paths: [0, two]", "a path must be ranks from 0 to 99 with commas between them, such as 0,1, not 'two'"),
    ("paths: [0, -1]", "a path must be ranks from 0 to 99 with commas between them, such as 0,1, not '-1'"),
    ("paths: []", "paths must be a list of 1 to 15 entries"),
    ("paths: 0", "paths must be a list of 1 to 15 entries"),
    ("parents: [0, 3, 2]", "must lead from every candidate to 0, not in a circle through 2, 3: give one of them"),
    ("parents: [1]", "must lead from every candidate to 0, not in a circle through 1: give one of them"),
    ("parents: [0, 4, 1]", "the parent of candidate 2 must be from 0 (the last token) to 3, not 4"),
    ("parents: [0, -1]", "the parent of candidate 2 must be from 0 (the last token) to 2, not -1"),
    ("parents: [0, true]", "the parent of candidate 2 must be from 0 (the last token) to 2, not True"),
    ("paths: [0]\nparents: [0]", "must have paths or parents, one of both, not paths, parents"),
    ("choices: [0]", "must have paths or parents, one of both, not choices"),
    ("parents: [" + ", ".join(["0"] * 16) + "]", "must have at most 15 candidates (one pass verifies 16 rows), not 16"),
    ("paths: [[0], [0, 0]]", "paths must be a list of values, not of lists"),
    ("- 0", "must hold fields")])
def test_what_is_no_tree(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path / "tree.yaml", text)
    assert str(error.value).startswith(f"--tree {tmp_path / 'tree.yaml'}")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--tree .*nowhere.yaml: "):
        LIMITS.check("--tree", str(tmp_path / "nowhere.yaml"))
    with pytest.raises(InputError, match="--tree must have the parent 1 of 1,0"):
        LIMITS.check("--tree", "0 1,0")


def test_places_that_nothing_fills_are_left_out() -> None:
    """And what is behind them; the likeliest path of those that are there comes first."""
    shape = LIMITS.places("--tree", "0 1 2 0,0 1,0 1,1 1,1,0 2,0")
    behind = {7: [8, 9], 8: [7], 9: [5, 6], 6: [8]}
    tree = fill(7, shape, 7, lambda token: [(one, 0.5, one) for one in behind.get(token, ())])
    assert tree.tokens == [7, 8, 7, 9, 5, 6, 8]
    assert tree.parent == [-1, 0, 1, 0, 3, 3, 5]
    assert tree.chances == [1, 0.5, 0.25, 0.5, 0.25, 0.25, 0.125]


SHAPES = ("0 1 0,0 0,1 1,0 0,0,0", "1 1,1 1,1,1", "0 1 2 3", "0 0,0 0,0,0 0,0,0,0", "0")


def made(method: str, shape: str, ledger: Ledger, most: int = 7, **options: object) -> Conversation:
    target = model().charging(ledger)
    way, kv = METHODS[method], target.kv()
    request = Request(draft=model(DRAFT).charging(ledger, DRAFT), target=target.charging(ledger, DRAFT), cache=kv,
                      lengths=LENGTHS["constant"](most), ends=frozenset(), rule=GREEDY, host=CONFIG.host,
                      options=way.values({"tree": shape, **options}))
    return Conversation(target, way.make(request), ledger, rule=GREEDY, kv=kv)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", ["draft-tree", "recycling"])
def test_methods_fill_the_shape_and_change_no_text(method: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the end of the context; trees have the shape, as far as the method finds candidates and tokens are left."""
    kind, trees, budgets = {"draft-tree": DraftTree, "recycling": Recycling}[method], list[Tree](), list[int]()
    inner = kind.propose

    def propose(self: DraftTree, ids: list[int], budget: int) -> Asking[Tree]:
        found = inner(self, ids, budget)
        tree = found if isinstance(found, Tree) else (yield from found)
        trees.append(tree)
        budgets.append(budget)
        return tree

    monkeypatch.setattr(kind, "propose", propose)
    talk = made(method, shape, Ledger(CONFIG))
    run_ = talk.turn(PROMPTS[0], 99)
    assert run_.tokens == plain(tuple(PROMPTS[0]), 99, "greedy", "stop").tokens
    places = LIMITS.places("--tree", shape)
    whole = sorted(sum(place[:-1] == above for place in places) for above in [(), *places])
    full = [tree for tree, budget in zip(trees, budgets) if budget >= len(places)]
    shaped = [tree for tree in full if sorted(len(tree.children(node)) for node in range(len(tree.tokens))) == whole]
    assert len(full) > 3
    assert len(shaped) == len(full) if method == "draft-tree" else len(shaped) > len(full) / 3
    assert all(len(tree.tokens) <= 1 + min(len(places), budget) for tree, budget in zip(trees, budgets))


def test_a_draft_that_is_the_target_follows_only_paths_of_the_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a draft's rank 0 is right: a chain of four keeps all, a shape without rank 0 keeps nothing."""
    chain, wrong = (made("draft-tree", shape, Ledger(CONFIG)).turn(PROMPTS[0], 40) for shape in (
        "0 0,0 0,0,0 0,0,0,0", "1 2 1,0"))
    assert chain.tokens == wrong.tokens
    assert all(accepted == drafted for drafted, accepted in chain.steps)
    assert all(accepted == 0 for _, accepted in wrong.steps)


@pytest.mark.parametrize(("method", "shape", "options", "message"), [
    ("draft-tree", "0 1 2 3 4", {}, "at most 4 candidates behind one path, as the method finds with these"),
    ("draft-tree", "0 0,0 0,0,0", {"draft_tree_depth": 2}, "at most 2 levels, as the method drafts with these options"),
    ("recycling", "0 8", {}, "at most 8 candidates behind one path"),
    ("recycling", "0 4", {"recycling_top": 1}, "at most 4 candidates behind one path"),
    ("recycling", "0 1 2 3 0,0 0,1 0,2 0,3", {}, "at most 7 candidates, as a step drafts with these options, not 8")])
def test_shapes_that_a_method_cannot_fill(method: str, shape: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"--tree must have {message}"):
        made(method, shape, Ledger(CONFIG), **options)
