"""The benchmarks' prompts are what they say; the committed results are those of their own rows."""

import importlib
import json
import platform
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest

from gemmule.sw.text import encode
from gemmule.sw.training.corpus import Corpus, is_included, load_corpus, split_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark("prompts", monkeypatch)


def benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module(name)


def same_library(record: dict) -> Corpus:
    """The running Python's library, where it is that of the prompts.

    Another version's files are other texts, of which the models saw none: there is nothing to compare. That the paths
    are held out is checked on every version.
    """
    running = platform.python_version_tuple()[:2]
    if running != tuple(record["python"].split(".")[:2]):
        pytest.skip(f"the prompts are of Python {record['python']}, this is {platform.python_version()}")
    return load_corpus()


def test_prompts_are_held_out(prompts: ModuleType) -> None:
    """By their paths, whichever Python runs."""
    _, found = prompts.load()
    assert len(found) == len({prompt.name for prompt in found}) == prompts.COUNT
    for prompt in found:
        path, line = prompt.name.rsplit(":", 1)
        assert is_included(PurePosixPath(path))
        assert split_of(path) == "held_out"
        assert (prompt.kind == "beginning") == (line == "1")
        assert prompts.MIN_LINES <= len(prompt.text.splitlines()) <= prompts.MAX_LINES
        assert encode(prompt.text)


def test_no_prompt_is_in_a_training_file(prompts: ModuleType) -> None:
    record, found = prompts.load()
    corpus = same_library(record)
    seen = [text for _, text in [*corpus.train, *corpus.calibration]]
    assert not [prompt.name for prompt in found if any(prompt.text in text for text in seen)]
    assert any(seen[0][:200] in text for text in seen)


def test_the_rule_gives_the_prompts(prompts: ModuleType) -> None:
    record, found = prompts.load()
    corpus = same_library(record)
    if corpus.digests() != record["splits"]:  # a patch release may change a file; the rule then gives other lines
        pytest.skip(f"the library is not that of Python {record['python']}")
    assert prompts.choose(corpus) == found


def test_the_rule_leaves_out_what_training_saw(prompts: ModuleType) -> None:
    """A library whose held-out file shares its first half with a file of training."""
    shared = "".join(f"shared = {i}\n" for i in range(60))
    own = "".join(f"own = {i}\n\n" for i in range(60))
    chosen = prompts.choose(Corpus([("a.py", shared)], [], [("b.py", shared + own)]), 8)
    assert len(chosen) == 8
    assert all("own" in prompt.text and not prompt.text.startswith("\n") for prompt in chosen)
    taken = [set(range(int(prompt.name.split(":")[1]), int(prompt.name.split(":")[1]) + prompt.text.count("\n")))
             for prompt in chosen]
    assert sum(map(len, taken)) == len(set().union(*taken))
    with pytest.raises(ValueError, match="must hold 8 prompts, not 0"):
        prompts.choose(Corpus([("a.py", shared)], [], [("b.py", shared)]), 8)


def test_changed_texts_are_noticed(prompts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "prompts.json"
    changed.write_text(prompts.FILE.read_text().replace("import sys", "import os", 1))
    monkeypatch.setattr(prompts, "FILE", changed)
    with pytest.raises(SystemExit, match="sha256 must be"):
        prompts.load()


def test_committed_speed_ups_are_those_of_their_rows(prompts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    lossless = benchmark("lossless", monkeypatch)
    result = json.loads((ROOT / "docs" / "results" / "lossless.json").read_text())
    record, found = prompts.load()
    assert result["conditions"]["prompts"]["sha256"] == record["sha256"]
    assert [row["prompt"] for row in result["rows"]] == [prompt.name for prompt in found]
    lengths = result["conditions"]["lengths"]
    assert {1, 3, 7} <= set(lengths)
    assert result["summaries"] == [lossless.summary(result["rows"], length) for length in lengths]
    assert all(s["equal"] == s["prompts"] == 50 for s in result["summaries"])


def test_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: three texts, one of them looping, one slower."""
    lossless = benchmark("lossless", monkeypatch)

    def row(speedup: float, distinct: float, kind: str) -> dict:
        cell = {"equal": True, "none": 1, "some": 2, "all": 3, "tokens_per_step": 2.0, "acceptance": 0.5}
        return {"kind": kind, "distinct_4grams": distinct, "3": cell | {"speedup": speedup}}

    found = lossless.summary([row(3.0, 0.1, "middle"), row(0.9, 0.5, "middle"), row(1.2, 0.9, "beginning")], 3)
    assert (found["mean"], found["median"], found["min"], found["max"]) == (pytest.approx(1.7), 1.2, 0.9, 3.0)
    assert (found["slower"], found["equal"], found["steps"]) == (1, 3, {"none": 3, "some": 6, "all": 9})
    assert found["parts"]["looping"] == {"prompts": 1, "mean": 3.0, "min": 3.0, "max": 3.0}
    assert found["parts"]["not looping"]["prompts"] == found["parts"]["middle"]["prompts"] == 2
    assert "definition" not in found["parts"]
    assert found["correlation_with_distinct_4grams"] < 0


def test_the_sentence_encoder_ranks_as_float() -> None:
    """The committed figures keep the bar, and are of the committed sentences."""
    found = json.loads((ROOT / "docs" / "results" / "sentences.json").read_text())
    folder = ROOT / "benchmarks"
    lists = [(folder / f"{name}.txt").read_text().splitlines() for name in ("sentences", "sentences_unseen")]
    assert len({*lists[0], *lists[1], *(folder / "calibration.txt").read_text().splitlines()}) == 2 * 64 + 50
    assert found["sentences"] == {"seen": 64, "unseen": 64}
    ranks = {(row["setting"], row["sentences"]): row["spearman"] for row in found["rows"]}
    for side in ("seen", "unseen"):
        assert min(ranks["int8", side], ranks["int8, second-order", side]) >= 0.99
        assert ranks["int8, ranges not evened out", side] < ranks["int8", side]


@pytest.mark.parametrize(("a", "b", "wanted"), [
    ([1, 2, 3, 4], [10, 20, 30, 99], 1.0), ([1, 2, 3, 4], [4, 3, 2, 1], -1.0), ([1, 2, 3, 4], [2, 1, 4, 3], 0.6)])
def test_rank_correlation(a: list[float], b: list[float], wanted: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module("benchmarks.sentences")
    assert module.spearman(a, b) == pytest.approx(wanted)
