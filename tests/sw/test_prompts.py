"""The prompts that decoding is measured on are what they say."""

import json
import platform
from pathlib import Path, PurePosixPath

import pytest

from gemmule.sw.limits import CATEGORIES
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.prompts import categories, choose
from gemmule.sw.text.corpus import Corpus, is_included, load_corpus, split_of


def same_library(record: dict) -> Corpus:
    """The running Python's library, where it is that of the choose.

    Another version's files are other texts, of which the models saw none: there is nothing to compare. That the paths
    are held out is checked on every version.
    """
    running = platform.python_version_tuple()[:2]
    if running != tuple(record["python"].split(".")[:2]):
        pytest.skip(f"the prompts are of Python {record['python']}, this is {platform.python_version()}")
    return load_corpus()


def test_prompts_are_held_out() -> None:
    """By their paths, whichever Python runs."""
    _, found = choose.load()
    assert len(found) == len({prompt.name for prompt in found}) == choose.COUNT
    for prompt in found:
        path, line = prompt.name.rsplit(":", 1)
        assert is_included(PurePosixPath(path))
        assert split_of(path) == "held_out"
        assert (prompt.kind == "beginning") == (line == "1")
        assert choose.MIN_LINES <= len(prompt.text.splitlines()) <= choose.MAX_LINES
        assert encode(prompt.text)


def test_no_prompt_is_in_a_training_file() -> None:
    record, found = choose.load()
    corpus = same_library(record)
    seen = [text for _, text in [*corpus.train, *corpus.calibration]]
    assert not [prompt.name for prompt in found if any(prompt.text in text for text in seen)]
    assert any(seen[0][:200] in text for text in seen)


def test_the_rule_gives_the_prompts() -> None:
    record, found = choose.load()
    corpus = same_library(record)
    if corpus.digests() != record["splits"]:  # a patch release may change a file; the rule then gives other lines
        pytest.skip(f"the library is not that of Python {record['python']}")
    assert choose.choose(corpus) == found


def test_the_rule_leaves_out_what_training_saw() -> None:
    """A library whose held-out file shares its first half with a file of training."""
    shared = "".join(f"shared = {i}\n" for i in range(60))
    own = "".join(f"own = {i}\n\n" for i in range(60))
    chosen = choose.choose(Corpus([("a.py", shared)], [], [("b.py", shared + own)]), 8)
    assert len(chosen) == 8
    assert all("own" in prompt.text and not prompt.text.startswith("\n") for prompt in chosen)
    taken = [set(range(int(prompt.name.split(":")[1]), int(prompt.name.split(":")[1]) + prompt.text.count("\n")))
             for prompt in chosen]
    assert sum(map(len, taken)) == len(set().union(*taken))
    with pytest.raises(ValueError, match="must hold 8 prompts, not 0"):
        choose.choose(Corpus([("a.py", shared)], [], [("b.py", shared)]), 8)


def test_changed_texts_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "completion.json"
    changed.write_text(choose.FILE.read_text().replace("import sys", "import os", 1))
    monkeypatch.setattr(choose, "FILE", changed)
    with pytest.raises(ValueError, match="sha256 must be"):
        choose.load()


def test_categories_are_held_out() -> None:
    found = categories.load_categories()
    assert tuple(found) == (*CATEGORIES, categories.CALIBRATION)
    assert [len(prompts) for prompts in found.values()] == [50, 40, 20, 15, 20, 20]
    names = [prompt.name for prompts in found.values() for prompt in prompts]
    for name, prompts in found.items():
        for prompt in prompts:
            split = "calibration" if name == categories.CALIBRATION else "held_out"
            assert split_of(prompt.name.rsplit(":", 1)[0]) == split
            assert len(encode(prompt.text, pair="default")) < 900
    assert len(set(names)) > 130


def test_the_rules_give_the_categories() -> None:
    record = json.loads(categories.FILE.read_text())
    corpus = same_library(record)
    if corpus.digests() != record["splits"]:  # as above: a patch release may change a file
        pytest.skip(f"the library is not that of Python {record['python']}")
    found = categories.load_categories()
    for name, prompts in categories.choose_categories(corpus).items():
        assert found[name] == prompts


def test_what_the_rules_take() -> None:
    code = """def f(x):
    \"\"\"First.

    More.
    \"\"\"
    return x


TABLE = [
""" + "".join(f"    {i},\n" for i in range(10)) + "]\n"
    (doc,) = categories.docstrings(("a.py", code))
    assert doc.text == 'def f(x):\n    """First.\n'
    (table,) = categories.tables(("a.py", code))
    assert table.text == "TABLE = [\n    0,\n    1,\n    2,\n    3,\n    4,\n"
    first = next(categories.repetitions(("a.py", "a = 1\nb = 2\nc = 3\nd = 4\n")))
    assert first.text == "a = 1\nb = 2\nc = 3\n" * 3 + "a = 1\n"
