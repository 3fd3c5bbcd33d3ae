"""`--adaptive`, `--tree` and `gemmule tree` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmule.sw.benches.theory import break_even, expected_tokens
from gemmule.sw.decoding.candidates.shape_files import shape_text
from gemmule.sw.decoding.methods.method import SHAPED

from .test_cli import run as run_command

Run = Callable[..., tuple[int, str, str]]
SHORT = ("--model", "small", "--max-new-tokens", "12")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; its exit code, words and errors."""
    def ran(*arguments: str) -> tuple[int, str, str]:
        code = run_command(monkeypatch, *arguments)
        return code, *capsys.readouterr()

    return ran


@pytest.mark.parametrize(("options", "message"), [
    (("--method", "ar", "--adaptive"), "--adaptive needs --method"),
    (("--method", "draft", "--adaptive", "--draft-lengths", "cost"), "not with --draft-lengths cost: drop one of the"),
    (("--method", "draft", "--adaptive", "--launch", "step"), "not with --launch step: drop one of the two"),
    (("--method", "pld", "--adaptive", "--kv-cache", "none"), "not with --kv-cache none: drop one of the two"),
    (("--method", "draft-tree", "--launch", "draft"), "--launch draft takes greedy tokens alone, not a")])
def test_what_does_not_go_together(run: Run, options: tuple[str, ...], message: str) -> None:
    code, _, error = run("generate", *SHORT, *options)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def test_a_batch(run: Run, tmp_path: Path) -> None:
    """The same texts in a batch, and what its rows cost."""
    out = tmp_path / "bench.json"
    code, text, error = run("bench", *SHORT, "--adaptive", "--batch", "2", "--method", "pld", "--category",
                            "repetition", "--num-speculative-tokens", "7", "--prompts", "2", "--json", str(out))
    assert code == 0, error
    told = json.loads(out.read_text())
    assert told["adaptive"] is True
    assert all(row["equal_to_ar"] == 2 and row["speedup_min"] > 0.99 for row in told["rows"])
    assert all(one["batch"] == 2 and one["cycles"] for one in told["pass_costs"])
    assert "tokens a pass of 2 texts over" in " ".join(text.split())
    prompts, told_of = tmp_path / "prompts.txt", tmp_path / "text.json"
    prompts.write_text("import os\n---\nimport sys\n")
    code, _, error = run("generate", *SHORT, "--adaptive", "--batch", "2", "--method", "pld", "--prompt-file",
                         str(prompts), "--json", str(told_of))
    assert code == 0, error
    assert json.loads(told_of.read_text())["same_tokens_as_ar"] is True


def test_generate_tells_of_it(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "text.json"
    code, _, error = run("generate", *SHORT, "--method", "pld", "--adaptive", "--json", str(out))
    assert code == 0, error
    told = json.loads(out.read_text())
    assert told["adaptive"] is True
    assert told["same_tokens_as_ar"] is True


def test_bench_tells_where_drafting_stops_paying(run: Run, tmp_path: Path) -> None:
    """Rows that are nearly free, and the acceptance below which a method loses."""
    out = tmp_path / "bench.json"
    code, text, error = run("bench", *SHORT, "--method", "pld,draft-tree", "--num-speculative-tokens", "3",
                            "--category", "repetition", "--prompts", "1", "--adaptive", "--json", str(out))
    assert code == 0, error
    told = json.loads(out.read_text())
    assert told["adaptive"] is True
    assert all(row["slower_than_ar"] == 0 or row["speedup_min"] > 0.99 for row in told["rows"])
    for one in told["pass_costs"]:
        costs = one["cycles"]
        assert costs[one["rows"] - 1] <= 1.03 * costs[0]
        assert one["rows"] == len(costs) or costs[one["rows"]] > 1.03 * costs[0]
        assert f"{one['rows']} of at most {len(costs)} rows costs no more than 1.03" in " ".join(text.split())


@pytest.mark.parametrize(("drafts", "cost"), [(1, 1.03), (5, 1.2), (7, 1.9), (3, 1.0)])
def test_break_even(drafts: int, cost: float) -> None:
    alpha = break_even(drafts, cost)
    assert alpha is not None
    assert expected_tokens(alpha, drafts) == pytest.approx(cost, abs=1e-6)


def test_what_never_pays() -> None:
    assert break_even(2, 3.5) is None
    assert break_even(0, 1.0) is None


@pytest.mark.parametrize("method", ["draft-tree", "recycling"])
def test_the_best_tree_is_printed(run: Run, tmp_path: Path, method: str) -> None:
    out = tmp_path / "tree.json"
    code, text, error = run("tree", *SHORT, "--method", method, "--prompts", "2", "--json", str(out))
    assert code == 0, error
    told = json.loads(out.read_text())
    assert f"best tree: {len(told['places'])} candidates" in text
    assert told["ranks"] == sorted(told["ranks"], reverse=True)
    assert told["gain"] >= 1
    assert (told["level_cycles"] > 0) == (method == "draft-tree")


def test_a_tree_of_no_draft(run: Run) -> None:
    code, _, error = run("tree", "--model", "nothing.safetensors")
    assert code == 2
    assert "--model must be one of" in error


def test_from_the_command_that_finds_it_to_the_one_that_takes_it(run: Run, tmp_path: Path) -> None:
    shape, told = tmp_path / "tree.yaml", tmp_path / "told.json"
    code, text, error = run("tree", *SHORT, "--method", "recycling", "--prompts", "2", "--json", str(told), "--out",
                            str(shape))
    assert code == 0, error
    places = [tuple(place) for place in json.loads(told.read_text())["places"]]
    assert set(SHAPED.places("--tree", str(shape))) == set(places)
    assert f"--methodrecycling--tree{shape}" in "".join(text.split())  # lines end anywhere
    code, _, error = run("generate", *SHORT, "--method", "recycling", "--tree", str(shape), "--json", str(told))
    assert code == 0, error
    record = json.loads(told.read_text())
    assert record["method_options"]["tree"] == shape_text(SHAPED.places("--tree", str(shape)))
    assert record["same_tokens_as_ar"] is True


@pytest.mark.parametrize(("options", "message"), [
    (("--method", "pld", "--tree", "0 1"), "--tree needs --method"),
    (("--method", "recycling", "--tree", "nowhere.yaml"), "--tree nowhere.yaml: "),
    (("--method", "recycling", "--tree", "0 0"), "--tree must name each path once, not 0 twice: drop one")])
def test_what_the_command_refuses(run: Run, options: tuple[str, ...], message: str) -> None:
    code, text, error = run("generate", *SHORT, *options)
    assert (code, text) == (2, "")
    assert message in error
    assert error.count("\n") == 1
