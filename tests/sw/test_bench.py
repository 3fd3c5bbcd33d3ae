"""`gemmule bench`: bounds, equal texts, resuming, what it refuses."""

import json
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.sw.bench import Case, Finished, measure, rows_of
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.session import Session
from gemmule.sw.text import encode

from .test_cli import run

CASES = [Case(method=method, num_tokens=count, temperature=0, rule="greedy")
         for method, count in (("ar", 0), ("always", 3), ("never", 3), ("draft", 3))]


def test_bounds() -> None:
    """Right drafts are all accepted, wrong ones never; neither runs a draft model."""
    with Session(load_config("base")) as session:
        found = list(measure(session, encode("import os\n"), 17, CASES, frozenset(), lambda case: GREEDY))
    ar, always, never, draft = found
    assert all(result["equal"] for result in found)
    assert always["steps"] == [[3, 3]] * 4 + [[0, 0]]
    assert never["steps"] == [[3, 0]] * 14 + [[2, 0], [1, 0], [0, 0]]
    assert always["draft_calls"] == never["draft_calls"] == ar["draft_calls"] == 0
    assert never["speedup_over_ar"] < ar["speedup_over_ar"] == 1 < always["speedup_over_ar"]
    assert draft["draft_calls"] > 0
    assert always["speedup"]["20000"] > always["speedup"]["2000"] == always["speedup_over_ar"]
    rows = rows_of([result | {"category": name, "prompt": "a"} for name in ("copy", "table") for result in found], 9)
    assert [row["category"] for row in rows] == ["copy"] * 4 + ["table"] * 4 + ["all"] * 4
    assert [row["prompts"] for row in rows] == [1] * 8 + [2] * 4
    assert [row["extra_parameters"] for row in rows[:4]] == [0, 0, 0, 9]
    assert rows[-1]["speedup_over_ar"] == rows[-1]["speedup_median"] == draft["speedup_over_ar"]


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "prompts.txt").write_text("import os\n---\nclass A:\n    x = 1\n")
    monkeypatch.chdir(tmp_path)
    arguments = ["bench", "--model", "small", "--prompt-file", "prompts.txt", "--method", "ar,draft,pld",
                 "--num-speculative-tokens", "2", "--temperature", "0,1", "--max-new-tokens", "8", "--resume",
                 "kept/runs.jsonl", "--json", "bench.json"]
    assert run(monkeypatch, *arguments) == 0
    first = json.loads(Path("bench.json").read_text())
    assert [(row["method"], row["verify"], row["equal_to_ar"]) for row in first["rows"]] == [
        ("ar", "greedy", 2), ("draft", "greedy", 2), ("pld", "greedy", 2),
        ("ar", "match", 2), ("draft", "rejection", None), ("pld", "match", 2)]
    lines = Path("kept/runs.jsonl").read_text().splitlines()
    assert len(lines) == 2
    Path("kept/runs.jsonl").write_text(lines[0] + "\n" + lines[1][:40])  # as an interruption leaves it
    assert run(monkeypatch, *arguments) == 0
    assert json.loads(Path("bench.json").read_text()) == first
    assert len(Path("kept/runs.jsonl").read_text().splitlines()) == 3


def test_other_settings_are_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    made = []

    def make() -> list[dict]:
        made.append(1)
        return [{"tokens": len(made)}]

    assert Finished(file, [1]).of("a", make) == Finished(file, [1]).of("a", make) == [{"tokens": 1}]
    assert Finished(file, [2]).of("a", make) == [{"tokens": 2}]
    assert Finished(file, [1]).of("b", make) == [{"tokens": 3}]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--method", "magic"], "--method must be one of ar, draft, pld, always, never, not 'magic'"),
    (["--num-speculative-tokens", "1,x"], "--num-speculative-tokens must be numbers between commas, not '1,x'"),
    (["--num-speculative-tokens", "16"], "--num-speculative-tokens must be from 1 to 15"),
    (["--temperature", "-1"], "--temperature must be 0 or from 0.001"),
    (["--verify", "match"], "--verify match needs --temperature above 0"),
    (["--category", "poems"], "--category must be one of completion, copy"),
    (["--prompt-file", "/none"], "--prompt-file /none must name a UTF-8 text file"),
    (["--max-new-tokens", "5000"], "--max-new-tokens must be from 1 to 1023"),
])
def test_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, arguments: list[str],
                 message: str) -> None:
    assert run(monkeypatch, "bench", *arguments) == 2
    assert message in capsys.readouterr().err
