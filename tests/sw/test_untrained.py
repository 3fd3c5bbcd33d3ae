"""Methods that learn from the text alone: what they count, propose and keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.sw.commands.bench import _cases
from gemmule.sw.datastore.datastore import DEPTH, Datastore
from gemmule.sw.datastore.suffix_array import suffix_array
from gemmule.sw.decoding.adaptive.worth import Worth
from gemmule.sw.decoding.candidates.branches import grow
from gemmule.sw.decoding.candidates.stored import Stored
from gemmule.sw.decoding.candidates.suffixes import Node, Suffixes
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.methods.chooser import Chooser, Path
from gemmule.sw.decoding.methods.lookahead import Lookahead
from gemmule.sw.decoding.methods.ngram import LAX, STRICT, NGram, likeliest
from gemmule.sw.decoding.methods.recycling import ANSWERS, CHANCES, Recycling, Table
from gemmule.sw.decoding.methods.suffix import Earlier, Suffix, Texts
from gemmule.sw.decoding.session import Session
from gemmule.sw.errors import InputError
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.step import Forward, TopK, Want

SEED = 20261127


def counted(texts: Sequence[Sequence[int]], depth: int) -> dict[tuple[int, ...], int]:
    """How often each run of up to ``depth`` tokens stands in texts."""
    found: dict[tuple[int, ...], int] = {}
    for text in texts:
        for first in range(len(text)):
            for end in range(first + 1, min(first + depth, len(text)) + 1):
                run = tuple(text[first:end])
                found[run] = found.get(run, 0) + 1
    return found


def runs(node: Node, before: tuple[int, ...] = ()) -> dict[tuple[int, ...], int]:
    """What a tree has counted."""
    found = {before: node.count} if before else {}
    for token, child in node.children.items():
        found |= runs(child, (*before, token))
    return found


@pytest.mark.parametrize("depth", [2, 5, 24])
def test_every_run_is_counted(depth: int) -> None:
    """Texts that are written in turns; one that is taken back leaves what the others counted."""
    random = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    texts = [random.integers(4, size=size).tolist() for size in (60, 1, 37)]
    suffixes = Suffixes(depth)
    writers = [suffixes.writer() for _ in texts]
    for first in range(0, max(map(len, texts)), 3):
        for writer, text in zip(writers, texts):
            writer.add(text[first:first + 3])
    assert runs(suffixes.root) == counted(texts, depth)
    assert suffixes.root.count == sum(map(len, texts))
    suffixes.forget(texts[0])
    assert runs(suffixes.root) == counted(texts[1:], depth)
    assert suffixes.match([9]) is None


def test_the_likeliest_candidates_make_the_tree() -> None:
    """Those with the largest products of chances; the likeliest path stands in the first rows."""
    random = np.random.default_rng(SEED)
    table = {token: [(int(after), float(chance)) for after, chance in zip(
        random.permutation(9)[:4], sorted(random.random(4) / 2, reverse=True))] for token in range(9)}

    def follow(token: int) -> list[tuple[int, float, int]]:
        return [(after, chance, after) for after, chance in table[token]]

    everything = {(): 1.0}
    for _ in range(4):
        everything |= {(*path, after): chance * further for path, chance in everything.items()
                       for after, further in table[path[-1] if path else 3]}
    for most in (0, 1, 7, 15):
        found = grow(3, most, 3, follow)
        paths: list[tuple[int, ...]] = [()]
        for node, parent in enumerate(found.tree.parent[1:], 1):
            paths.append((*paths[parent], found.tree.tokens[node]))
        best = sorted(everything.values(), reverse=True)[:most + 1]
        assert sorted((everything[path] for path in paths), reverse=True) == best
        assert found.expected == pytest.approx(sum(best) - 1)
        for node in range(1, len(paths)):  # the first child of a node is right behind it, and the likeliest
            inside = found.tree.children(found.tree.parent[node])
            assert inside[0] == found.tree.parent[node] + 1
            assert everything[paths[inside[0]]] == max(everything[paths[child]] for child in inside)
    assert len(grow(3, 15, 3, follow, least=0.2).tree.tokens) - 1 == sum(
        chance >= 0.2 for path, chance in everything.items() if path)


def begun(drafter: Suffix, text: list[int]) -> list[int]:
    drafter.begin(text)
    return text


def test_suffix_decoding() -> None:
    text = [1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 6, 9, 7, 2, 3, 4]
    drafter = Suffix(Texts(24), 15, factor=1.0)
    begun(drafter, text)
    tree = drafter.propose(text, 15)  # 2 3 4 stood twice: three candidates by the factor of 1
    assert [tree.tokens[node] for node in tree.children(0)] == [5, 6]
    assert len(tree.tokens) == 4
    assert Suffix(Texts(24), 2).propose(text, 15).tokens == [4], "nothing is known before the text begins"
    for options, count in (({"factor": 2.0}, 6), ({}, 15), ({"factor": 0.3}, 0), ({"least": 0.4}, 0)):
        other = Suffix(Texts(24), 15, **options)  # type: ignore[arg-type]
        begun(other, text)
        assert len(other.propose(text, 15).tokens) - 1 == count, options
    path = Suffix(Texts(24), 15, factor=2.0, form="path")
    begun(path, text)
    assert path.propose(text, 15).tokens == [4, 5, 9, 1, 2, 3, 4]
    assert path.propose(text, 2).tokens == [4, 5, 9]
    path.begin([4, 4, 8, 4])
    assert path.propose([4, 4, 8, 4], 15).tokens[1:] in ([4, 8], [8, 4]), "of another text nothing is left"


def test_earlier_texts_of_a_session() -> None:
    """Found by the same way to decode alone; the oldest one goes where there are too many."""
    earlier = Earlier(Suffixes(24), 2)
    for text in ([1, 2, 3, 4, 5], [6, 7, 8, 9]):
        Texts(24, earlier).begin(text)
    last = Suffix(Texts(24, earlier), 15, factor=1.0)  # the first text goes
    assert last.propose(begun(last, [7, 8]), 15).tokens == [8, 9]
    other = Suffix(Texts(24, earlier), 15, factor=1.0)
    assert other.propose(begun(other, [2, 3]), 15).tokens == [3]
    with Session(load_config("base"), interpreted=True) as session:
        prompt = encode("import os\nfrom pathlib import Path\n")
        options = {"suffix_decoding_max_cached_requests": 5}
        cold = session.generate("suffix", prompt, 24)
        first, second = (session.generate("suffix", prompt, 24, options=options) for _ in range(2))
        seven = session.generate("suffix", prompt, 24, 7, options=options)
    assert first.tokens == second.tokens == seven.tokens == cold.tokens
    assert first.steps == cold.steps
    assert len(second.steps) < len(cold.steps), "the same request again"
    assert len(seven.steps) >= len(cold.steps), "what another way to decode has seen does not count"


def forward(top: Sequence[Sequence[int]]) -> Forward:
    tokens = np.array(top)
    return Forward(tokens[:, 0].tolist(), (), top=TopK(tokens, np.zeros_like(tokens)))


def test_the_table_of_recycling() -> None:
    """Wrong branches fill it, too; of a token in several branches the accepted one counts."""
    drafter = Recycling(7, Table(2))
    assert drafter.prompt_want() == drafter.want()
    assert Recycling(7, Table(2), prompts=False).prompt_want() is None
    drafter.read([5, 6], forward([[6, 7], [5, 8]]))
    drafter.begin([5, 6, 5])
    tree = drafter.propose([5, 6, 5], 7)
    assert tree.tokens[:3] == [5, 6, 5]
    assert sorted(tree.tokens[node] for node in tree.children(0)) == [6, 7]
    assert len(drafter.propose([5, 6, 5], 3).tokens) == 4
    tree = drafter.propose([5, 6, 5], 7)
    rows = [[100 + node, 200 + node] for node in range(len(tree.tokens))]
    path = [0, 1]
    drafter.observe(forward(rows), path, [6, 101])
    assert drafter.table.behind[5] == rows[0], "the accepted one, although later rows have the same token"
    assert drafter.table.behind[6] == rows[1]
    assert drafter.table.behind[7] == rows[tree.tokens.index(7)]
    assert drafter.propose([5, 6, 101], 7).tokens == [101], "nothing is known of a token that no row stood for"
    assert list(CHANCES) == sorted(CHANCES, reverse=True)
    assert sum(CHANCES) < 1


def test_the_last_answers_are_a_table_without_top_k() -> None:
    """The newest first, none twice; the device is asked for nothing more than its tokens."""
    drafter = Recycling(7, Table(1))
    assert drafter.want() is None
    assert (drafter.prompt_want() or Want(top=9)).plain
    for answer in (6, 7, 6, 8, 9, 10):
        drafter.read([5], Forward([answer], ()))
    assert drafter.table.behind[5] == [10, 9, 8, 6]
    assert [chance for _, chance, _ in drafter.table.follow(5)] == list(ANSWERS)
    assert len(drafter.propose([5], 3).tokens) == 4


def test_the_chooser_reads_a_datastore_behind_the_text() -> None:
    """What the text said decides where its run is long; elsewhere the datastore's longest runs do."""
    tokens = np.array([1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 1, 2, 3, 4, 9], dtype=np.uint16)
    stored = Stored(Datastore(tokens, suffix_array(tokens, DEPTH), 9, "none"))
    assert [places.length for places in stored.ends([7, 1, 2])] == [1, 2]
    assert [places.length for places in stored.ends([7])] == []
    (once,), (twice,) = (stored.datastore.behind(places, 1)[:1] for places in stored.ends([2, 3]))
    assert once[0] == twice[0] == 4
    assert [places.length for places in stored.longer(3, stored.ends([1, 2]))] == [2, 3]
    assert stored.trust(stored.ends([2, 3])[1]) > stored.trust(stored.ends([3, 5])[1]), "three places, one place"
    drafter = Chooser(3, Texts(24), Table(1), stored=stored)
    drafter.begin([7, 1, 2])
    assert drafter.propose([7, 1, 2], 15).tokens == [2, 3, 4, 5]
    text = [8, 1, 2, 6, 6, 8, 1, 2]
    drafter.begin(text)
    assert drafter.propose(text, 15).tokens[1] == 6
    assert Chooser(3, Texts(24), Table(1)).propose([7, 1, 2], 15).tokens == [2], "nothing is known"


def test_candidates_that_are_not_worth_their_rows_are_left_out() -> None:
    worth = Worth(0, 0)
    for rows, cycles in ((1, 1000), (8, 1000), (16, 1300)):
        worth.seen[rows] = cycles
    tokens = np.array([1, 2, 9] * 8 + [1, token := 3, 9], dtype=np.uint16)
    stored = Stored(Datastore(tokens, suffix_array(tokens, DEPTH), 9, "none"))
    drafter = Chooser(15, Texts(24), Table(1), stored=stored, worth=worth)
    text = [*range(20, 40), 1]
    drafter.begin(text)
    assert token in drafter.propose(text, 15).tokens
    assert len(drafter.tree.tokens) == 8, "more rows than cost nothing, and nothing that is likely"


def test_the_chooser_has_both() -> None:
    text = [2, 3, 7, 7, 2, 3]

    def made(both: bool, least_match: int = 2) -> Chooser:
        drafter = Chooser(15, Texts(24), Table(2), both=both, least_match=least_match)
        drafter.read([3, 4], forward([[50, 51], [60, 61]]))
        drafter.begin(text)
        return drafter

    both, either = (made(form).propose(text, 15) for form in (True, False))
    assert [both.tokens[node] for node in both.children(0)][:3] == [7, 50, 51]
    assert both.tokens[:3] == [3, 7, 7], "the likeliest path comes first"
    assert either.tokens == [3, 7, 7, 2, 3]
    later = made(False, 3).propose(text, 15)
    assert {later.tokens[node] for node in later.children(0)} == {50, 51}, "a run of two tokens is too short"


def test_guesses_of_a_model_stand_in_the_place_of_the_table() -> None:
    """Each at its path: less than what followed a long run; where there is none, the target's last answers count."""
    class Guessing(Chooser):
        trust = (0.1, 0.3, 0.9)

        def guessed(self, path: Path) -> Mapping[int, float]:
            return {(): {70: 0.6, 71: 0.2}, (70,): {80: 0.7}}.get(path, {})

    for text, first in (([2, 3, 7, 7, 2, 3], [70, 7, 71]), ([1, 2, 3, 7, 7, 1, 2, 3], [7, 70, 71])):
        drafter = Guessing(15, Texts(24), Table(1))
        drafter.table.behind = {3: [50], 70: [60], 71: [61]}
        drafter.begin(text)
        found = drafter.mixed(drafter.place(text))
        assert [token for token, _, _ in found][:3] == first
        assert 50 not in [token for token, _, _ in found]
        places = {token: place for token, _, place in found}
        assert drafter.mixed(places[70])[0][:2] == (80, 0.7)
        assert drafter.mixed(places[71])[0][:2] == (61, ANSWERS[0])


def test_runs_count_beside_guesses_by_another_table_than_alone() -> None:
    class Guessing(Chooser):
        trust = (0.01,)
        guesses: Mapping[int, float] = {}

        def guessed(self, path: Path) -> Mapping[int, float]:
            return self.guesses

    text, found = [1, 2, 3, 7, 1, 2, 3], []
    for guesses in ({}, {70: 0.6}):
        drafter = Guessing(15, Texts(24), Table(1))
        drafter.begin(text)
        drafter.guesses = guesses
        found.append([one[:2] for one in drafter.mixed(drafter.place(text))])
    plain = Chooser(15, Texts(24), Table(1))
    plain.begin(text)
    assert found[0] == [one[:2] for one in plain.mixed(plain.place(text))]
    assert [one[0][0] for one in found] == [7, 70]


def test_where_the_table_has_nothing() -> None:
    """The answers behind rejected candidates for the same place stand in, before the text's frequent tokens."""
    drafter = Chooser(7, Texts(24), Table(2))
    drafter.read([1], forward([[20, 21]]))
    drafter.begin([5, 5, 1])
    tree = drafter.propose([5, 5, 1], 7)
    rows = [[9, 8] for _ in tree.tokens]
    rows[0] = [30, 31]
    for node in tree.children(0):
        rows[node] = [40, 41]
    drafter.observe(forward(rows), [0], [30])
    found = drafter.propose([5, 5, 1, 30], 7)
    assert [found.tokens[node] for node in found.children(0)] == [40, 5, 41, 1, 30]
    leaf = next(node for node in found.children(0) if not found.children(node))
    drafter.observe(forward([[50, 51]] * len(found.tokens)), [0, leaf], [found.tokens[leaf], 50])
    assert drafter.beside == {}, "nothing was rejected behind the last one"


def test_ngrams() -> None:
    """A longer run decides before a shorter one; thresholds are those of its length."""
    grams = Suffixes(5)
    grams.writer().add([1, 2, 3, 1, 2, 4, 1, 2, 4, 8, 2, 5, 9, 2, 5])
    assert likeliest(grams, [1, 2], LAX) == 4, "two of three"
    assert likeliest(grams, [8, 2], LAX) is None, "seen once, and 2 alone is followed by 4 and 5 alike"
    assert likeliest(grams, [4, 8, 2], LAX) == 5, "once is enough for three tokens"
    assert likeliest(grams, [1, 2], STRICT) == 4
    assert likeliest(grams, [4, 8, 2], STRICT) is None
    assert likeliest(grams, [7], LAX) is None
    drafter = NGram(6)
    text = [1, 2, 3, 4, 5, 1, 2, 3, 4]
    drafter.begin(text)
    assert drafter.propose(text, 15).tokens == [4, 5, 1, 2, 3, 4, 5], "drafted tokens count as text"
    assert drafter.propose(text, 2).tokens == [4, 5, 1]


def test_the_window_of_lookahead() -> None:
    """W 5, N 4, G 2: the attention mask of the paper's figure, row by row."""
    drafter = Lookahead(5, 4, 2, 16)
    drafter.begin([1, 2, 3])
    drafter.levels = [[10, 11, 12, 13], [20, 21, 22, 23, 24], [30, 31, 32, 33, 34]]
    drafter.pool = {3: [(40, 41, 42), (50, 51, 52)]}
    tree = drafter.propose([1, 2, 3], 40)
    assert tree.tokens == [3, 50, 51, 52, 40, 41, 42]
    assert tree.parent == [-1, 0, 1, 2, 0, 4, 5]
    rows = tree.rows(100)
    assert rows.positions.tolist() == [100, *(101, 102, 103) * 2, *range(101, 105), *range(101, 106), *range(102, 107)]
    names = ["0", *"abcdef", "o1", "o2", "o3", "o4", *(f"g{i}" for i in range(5)), *(f"r{i}" for i in range(5))]
    seen = {name: {names[i] for i in np.flatnonzero(row)} for name, row in zip(names, rows.mask)}
    assert seen["c"] == {"0", "a", "b", "c"}
    assert seen["e"] == {"0", "d", "e"}
    assert seen["o3"] == {"0", "o1", "o2", "o3"}
    assert seen["g0"] == {"0", "g0"}
    assert seen["g3"] == {"0", "o1", "o2", "o3", "g3"}
    assert seen["r0"] == {"0", "g0", "r0"}
    assert seen["r4"] == {"0", "o1", "o2", "o3", "o4", "g4", "r4"}
    answers = [*range(60, 60 + len(names))]
    drafter.observe(Forward(answers, ()), [0], [60])
    made = answers[-5:]
    assert drafter.levels == [[21, 22, 23, 24], [30, 31, 32, 33, 34], made]
    assert drafter.pool[3] == [(50, 51, 52), (20, 30, made[0])], "the newest ones"
    assert drafter.pool[13] == [(24, 34, made[4])]


def test_the_window_fills_level_by_level() -> None:
    """Columns stay where they stand in the text; a step without room for the window leaves it as it is."""
    drafter = Lookahead(3, 4, 2, 16)
    drafter.begin([5] * 9)
    drafter.levels = [[11, 12, 13, 14]]
    drafter.propose([5], 20)
    drafter.observe(Forward([21, 22, 23, 24, 25], ()), [0], [21])
    assert drafter.levels == [[12, 13, 14], [22, 23, 24, 25]]
    assert drafter.propose([5, 21], 6).extra == ()
    drafter.observe(Forward([7], ()), [0], [7])
    assert drafter.levels == [[12, 13, 14], [22, 23, 24, 25]]
    drafter.propose([5, 21, 7], 20)
    drafter.observe(Forward([1, 2, 3, 4, 32, 33, 34, 35], ()), [0], [1])
    assert drafter.levels == [[13, 14], [23, 24, 25], [33, 34, 35]]
    assert not drafter.pool


def test_all_of_an_ngram_and_the_token_behind_it() -> None:
    """No token that was accepted is lost: N of them a step."""
    with Session(load_config("base"), interpreted=True) as session:
        prompt = encode("x = 1\n" * 12)
        plain = session.generate("ar", prompt, 40).tokens
        run = session.generate("lookahead", prompt, 40, options={"lookahead_window": 4, "lookahead_ngram": 4})
        pooled = session.generate("lookahead", prompt, 40, options={"lookahead_pool_from_prompt": "on"})
    assert run.tokens == pooled.tokens == plain
    assert max(accepted for _, accepted in run.steps) == 3
    assert max(accepted for _, accepted in pooled.steps) == 4
    assert len(pooled.steps) < len(plain)


@pytest.mark.parametrize(("method", "options", "message"), [
    ("lookahead", {"lookahead_window": 14}, "--lookahead-window must be at most 13 with n-grams of 5 tokens, as a "
                                            "launch has 16 rows, and the window's last one needs 17, not 14"),
    ("suffix", {"suffix_decoding_min_token_prob": 1.5},
     "--suffix-decoding-min-token-prob must be from 0 to 1, not 1.5"),
    ("recycling", {"recycling_top": 9}, "--recycling-top must be from 1 to 8, not 9"),
    ("recycling", {}, "--method recycling needs a session with general=True")])
def test_what_cannot_be(method: str, options: dict[str, object], message: str) -> None:
    with (Session(load_config("base"), interpreted=True, general=options != {}) as session,
          pytest.raises(InputError, match=message)):
        session.generate(method, [5, 6], 4, options=options)


def test_a_bench_of_methods_without_a_number_of_drafts() -> None:
    """One case, whatever numbers of drafts the others have."""
    cases = _cases(["lookahead", "suffix", "never"], [1, 3], [0.0], None)
    assert [(case.method, case.num_tokens) for case in cases] == [
        ("lookahead", 0), ("suffix", 1), ("suffix", 3), ("never", 1), ("never", 3)]


def test_methods_that_no_schedule_paces() -> None:
    assert {name for name, one in METHODS.items() if not one.scheduled} == {
        "suffix", "recycling", "chooser", "draft-tree", "lookahead", "parallel", "joined", "eagle", "retrieval",
        "multi-draft", "blockwise", "medusa", "medusa-typical", "hydra", "streaming"}
