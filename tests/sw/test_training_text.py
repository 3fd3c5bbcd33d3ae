"""What training reads: packages, overlap with held-out text, functions and their copies, the copy test's list."""

import ast
import difflib
import importlib.metadata as metadata
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from gemmule.sw.prompts import copies, functions
from gemmule.sw.text import corpus
from gemmule.sw.training.data import alignment, packages, prepare, requests, tokenizer

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''import os


class Stack:
    """Last in, first out."""

    @property
    def depth(self):
        count = 0
        for item in self.items:
            count = count + 1
        return count

    async def push(self, item, times=1, *, quiet=False):
        def inner(item):
            return item
        for turn in range(times):
            self.items.append(inner(item))
        return times == 3


def short():
    return 1


def one_line(a): return a


def wrapped_head(
    first,
    second,
):
    total = first + second
    total = total * 2
    total = total - first
    total = total or None
    return total
'''


@pytest.fixture(scope="module")
def found() -> list[functions.Function]:
    return functions.functions_of(("stack.py", SOURCE))


def test_functions_as_they_stand(found: list[functions.Function]) -> None:
    assert [one.where for one in found] == ["stack.py:7", "stack.py:14", "stack.py:29"]
    assert [one.names for one in found] == [
        ("depth",), ("push", "item", "times", "quiet"), ("wrapped_head", "first", "second")]
    assert all(one.text in SOURCE and one.signature + one.body == one.text for one in found)
    assert found[0].signature == "    @property\n    def depth(self):\n"
    assert found[2].signature.endswith("):\n")
    assert functions.functions_of(("broken.py", "def f(:\n")) == []
    assert functions.functions_of(("python2.py", "print 'a'\n" * 9)) == []


def test_copies_have_few_edits(found: list[functions.Function]) -> None:
    """Every copy differs in at most three names and lines, some not at all; the same seed gives the same copies."""
    pool = ["alpha", "beta", "gamma"]
    made = []
    for seed in range(200):
        for one in found:
            copy = functions.copy_of(one, pool, np.random.default_rng(seed))
            assert copy == functions.copy_of(one, pool, np.random.default_rng(seed))
            renamed = sum(name in copy for name in pool)
            before, after = one.text, copy
            for name in (*one.names, *pool):  # names apart: only single places remain
                before, after = functions.rename(before, name, "name"), functions.rename(after, name, "name")
            steps = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
            places = sum(max(b - a, d - c) for kind, a, b, c, d in steps if kind != "equal")
            assert renamed + places <= functions.MOST_EDITS
            assert after.count("\n") <= before.count("\n"), "no line is doubled"
            made.append(copy == one.text)
    assert 0.1 < np.mean(made) < 0.7


def test_rename_takes_whole_words() -> None:
    assert functions.rename("item items item_ (item) 'item'", "item", "x") == "x items item_ (x) 'x'"
    assert functions.rename("a.b", "a.b", r"\1") == r"\1"


def test_name_pool_holds_no_special_names(found: list[functions.Function]) -> None:
    special = functions.functions_of(("a.py", "def __init__(self, __hidden, ab):\n" + "    pass\n" * 9))
    assert functions.name_pool([*found, *special]) == sorted(
        {"depth", "push", "item", "times", "quiet", "wrapped_head", "first", "second"})


def test_committed_copies_are_what_the_rule_chooses() -> None:
    kept = copies.load_copies(ROOT / "sw" / "prompts" / "copies.json")
    assert len(kept) == 40
    assert {len(copy.edits) for copy in kept} == {0, 1, 2, 3}
    for copy in kept:
        assert corpus.split_of(copy.where.partition(":")[0]) == "held_out"
        assert copy.prompt.startswith(copy.text)
        assert copy.wanted.count("\n") >= copies.LEAST_BODY
        assert all(old in copy.text and new not in copy.text for old, new in copy.edits)
        if copy.edits:
            assert copy.wanted != copy.text.split("\n", copy.head)[-1] or any(
                new in copy.prompt for _, new in copy.edits)
    library = corpus.load_corpus()
    record = (ROOT / "sw" / "prompts" / "copies.json").read_text(encoding="utf-8")
    if library.digests()["held_out"] in record:  # another Python's library has other functions
        assert copies.choose_copies(library) == kept


def test_changed_list_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "sw" / "prompts" / "copies.json").read_text(encoding="utf-8")
    (tmp_path / "copies.json").write_text(text.replace("return", "retorn", 1), encoding="utf-8")
    with pytest.raises(ValueError, match="sha256 must be"):
        copies.load_copies(tmp_path / "copies.json")


def test_similarity_is_edit_distance() -> None:
    def plain(a: list[int], b: list[int]) -> int:
        row = list(range(len(b) + 1))
        for i, x in enumerate(a, 1):
            before, row = row, [i]
            for j, y in enumerate(b, 1):
                row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
        return row[-1]

    random = np.random.default_rng(4)
    for _ in range(200):
        a, b = (random.integers(0, 3, random.integers(0, 9)).tolist() for _ in range(2))
        assert copies.similarity(a, b) == pytest.approx(1 - plain(a, b) / max(1, len(a), len(b)))
    assert copies.similarity([], []) == 1.0
    assert copies.similarity([1, 2], []) == 0.0


@pytest.mark.parametrize(("path", "included"), [
    ("nn/functional.py", True), ("testing/common.py", False), ("fft/tests/test_a.py", False), ("test_it.py", False),
    ("conftest.py", False), ("latex/_antlr/parser.py", False), ("test/a.py", False), ("attestation.py", True),
])
def test_package_files(path: str, included: bool) -> None:
    assert packages.is_included(PurePosixPath(path)) is included


def test_tables_are_no_code() -> None:
    assert packages.is_table("X = [\n" + "    0.125, 3.75, 1024.0,\n" * 50 + "]\n")
    assert not packages.is_table(SOURCE)


def test_overlapping_files_are_dropped() -> None:
    held = "\n".join(f"    the_held_out_line_number_{i} = compute({i})" for i in range(40)) + "\n"
    own = "\n".join(f"this_is_a_line_of_our_own_{i} = compute({i})" for i in range(95)) + "\n"
    five = "".join(held.splitlines(keepends=True)[:5])
    train = [("a.py", own), ("b.py", own + five), ("c.py", own + held), ("d.py", "short = 1\n" * 50)]
    assert packages.overlap(own + five, packages.foreign([("h.py", held)])) == 0.05
    parts = corpus.Corpus(train, [("e.py", held)], [("h.py", held)])
    paths = [f"pkg/{i}.py" for i in range(300)]
    texts = packages.assemble(parts, [(path, own) for path in paths] + [("pkg/z.py", held)], [("s.py", "x = 1\n")])
    assert [path for path, _ in texts.library] == ["a.py", "b.py", "d.py"], "5 % may be shared, no more"
    assert ("c.py", 40 / 135) in texts.dropped
    assert [path for path, _ in texts.packages] == [path for path in paths if corpus.split_of(path) == "train"]
    assert packages.assemble(parts, [("pkg/0.py", held)], [("s.py", held)]).packages == []


def test_second_set_is_chosen_by_path_alone() -> None:
    documents = [(f"p/{i}.py", "x") for i in range(200)]
    chosen = packages.choose(documents)
    assert len(chosen) == packages.SECOND_FILES
    assert chosen == packages.choose([(path, "y") for path, _ in reversed(documents)]) or [
        path for path, _ in chosen] == [path for path, _ in packages.choose([(path, "y") for path, _ in documents])]
    assert packages.SECOND.name not in {package.name for package in packages.TRAINED}


def test_other_versions_are_refused() -> None:
    version = metadata.version("pydantic")
    with pytest.raises(ValueError, match=rf"pydantic must have version 0\.1, not {version}: pip install"):
        packages.read_package(packages.Package("pydantic", "0.1"))
    with pytest.raises(ValueError, match="not-there 1 must be installed"):
        packages.read_package(packages.Package("not-there", "1"))
    source = packages.read_package(packages.Package("pydantic", version))
    assert source.licence == "MIT"
    assert len(source.documents) > packages.SECOND_FILES
    assert all(path.startswith("pydantic/") for path, _ in source.documents)


def test_pins_are_those_of_the_extra() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package in (*packages.TRAINED, packages.SECOND):
        assert f'"{package.name}=={package.version}"' in text


def test_committed_record_of_the_corpus() -> None:
    import json

    record = json.loads((ROOT / "docs" / "results" / "corpus.json").read_text(encoding="utf-8"))
    assert {(one["name"], one["version"]) for one in record["packages"]} == {
        (package.name, package.version) for package in (*packages.TRAINED, packages.SECOND)}
    assert all(one["shared"] > packages.MOST_SHARED for one in record["dropped"])
    assert not any(corpus.split_of(one["path"]) != "train" for one in record["dropped"])


def test_pairs_hold_functions_and_copies() -> None:
    library = [(f"l{i}.py", SOURCE) for i in range(4)]
    texts = packages.Texts(library=library, packages=[("p.py", SOURCE)] * 9, calibration=[], held_out=[], second=[],
                           dropped=[])
    pairs = prepare.pairs_of(texts, seed=3)
    assert len(pairs) == prepare.PASSES * 3 * 4 + min(27, prepare.PASSES * 3 * 4)
    assert pairs == prepare.pairs_of(texts, seed=3) != prepare.pairs_of(texts, seed=4)
    for pair in pairs:
        assert any(pair.startswith(one.text) for one in functions.functions_of(("", SOURCE)))
    words = tokenizer.train_tokenizer(pairs, vocab_size=300)
    tokens, starts = prepare.encoded(words, pairs)
    assert tokens.dtype == np.uint16
    assert [words.decode(tokens[a:b].tolist(), skip_special_tokens=True)
            for a, b in zip(starts, starts[1:])] == pairs
    assert ast.parse("class A:\n" + pairs[0] if pairs[0].startswith(" ") else pairs[0])


def test_requests_are_cut_as_the_test_s_are() -> None:
    longer = SOURCE.replace("        return times == 3\n", "        times = 3\n        return times == 4\n")
    library = [(f"l{i}.py", SOURCE) for i in range(4)]
    texts = packages.Texts(library=library, packages=[("p.py", SOURCE)] * 9, calibration=[("c.py", longer)],
                           held_out=[], second=[], dropped=[])
    found, judged = requests.requests_of(texts, seed=3)
    assert len(judged) == 1, "a body of 6 lines or more"
    assert judged[0][1].endswith(" == 4\n\n\n")
    assert len(found) == prepare.PASSES * 3 * 4 + min(27, prepare.PASSES * 3 * 4)
    assert (found, judged) == requests.requests_of(texts, seed=3) != requests.requests_of(texts, seed=4)
    originals, renamed = functions.functions_of(("", SOURCE)), 0
    for given, wanted in found:
        original = next(one for one in originals if given.startswith(one.text))
        assert wanted.endswith(prepare.SEPARATOR)
        assert len((wanted[:-2]).splitlines()) == len(original.body.splitlines())
        copy = copies.Copy("", original.text, original.head, ())
        assert given.count("\n") == copy.prompt.count("\n"), "function, blank lines and signature"
        renamed += (given, wanted[:-2]) != (copy.prompt, copy.wanted)
    assert len(found) * 0.4 < renamed < len(found), "0 to 3 names are others"


def test_aligned_places_are_those_of_fewest_edits() -> None:
    first = np.array([9, 9, 1, 2, 3, 4, 5, 6, 7])
    assert alignment.aligned(first, np.array([1, 2, 3, 4, 5])).tolist() == [2, 3, 4, 5, 6]
    assert alignment.aligned(first, np.array([1, 2, 8, 4, 5])).tolist() == [2, 3, -1, 5, 6], "another token"
    assert alignment.aligned(first, np.array([1, 2, 8, 3, 4, 5])).tolist() == [2, 3, -1, 4, 5, 6], "one put in"
    assert alignment.aligned(first, np.array([1, 2, 4, 5])).tolist() == [2, 3, 5, 6], "one lost"
    assert alignment.aligned(first, np.array([0, 0])).tolist() == [-1, -1]
    twice = np.tile(np.arange(1, 5), 2)
    assert alignment.aligned(twice, np.arange(1, 5)).tolist() == [4, 5, 6, 7], "the last of several"


def test_aligned_places_of_random_edits() -> None:
    seed = 5
    print("seed", seed)
    random = np.random.default_rng(seed)
    for _ in range(30):
        first = random.integers(0, 6, int(random.integers(1, 40)))
        second = np.array([token for token in first if random.random() > 0.2] or [1])
        places = alignment.aligned(first, second)
        there = np.flatnonzero(places >= 0)
        assert (first[places[there]] == second[there]).all()
        assert (np.diff(places[there]) > 0).all(), "in order"
        assert len(there) >= len(second) - (len(first) - len(second)), "no more edits than were made"


def test_windows_hold_requests() -> None:
    pairs = [(np.arange(10 * i, 10 * i + 4), np.arange(10 * i + 1, 10 * i + 4)) for i in range(1, 30)]
    asked = requests.Requests([*pairs, (np.arange(50), np.arange(50))], 32, (1,))
    assert len(asked.pairs) == 29, "the one that does not fit is left out"
    found = asked.step(7, 5)
    assert found.tokens.shape == (5, 33)
    assert found.wanted.shape == found.places.shape == (5, 32)
    for tokens, wanted, places in zip(found.tokens, found.wanted, found.places, strict=True):
        for start in range(0, 28, 7):
            group = tokens[start:start + 7]
            assert group.tolist() == [*range(group[0], group[0] + 4), *range(group[0] + 1, group[0] + 4)]
            assert wanted[start:start + 7].tolist() == [False] * 3 + [True] * 3 + [False]
            assert places[start:start + 7].tolist() == [-1] * 3 + [start + 1, start + 2, start + 3, -1]
    again = asked.step(7, 5)
    assert np.array_equal(again.tokens, found.tokens)
    assert not np.array_equal(asked.step(8, 5).tokens, found.tokens)
    with pytest.raises(ValueError, match="no function and its copy fit a window of 6 tokens"):
        requests.Requests(pairs, 6, (1,))


def test_a_folder_without_a_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no corpus: run gemmule.sw.training.data.prepare"):
        prepare.load_arrays(tmp_path)
