"""`gemmule prune`: schedules compared, one chosen within the budget, written as `--prune` takes it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning, load_pruning
from gemmule.sw.workloads.schedules import best, grid, with_pareto

from .test_cli import run

QUICK = ("prune", "--keep", "1.0,0.5", "--every", "16", "--window", "72", "--windows", "1")


@pytest.mark.slow
def test_chooses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keeping all costs nothing; with a wide budget half is cheaper than nothing; finished schedules are not run again.
    """
    out, told, kept = tmp_path / "schedule.yaml", tmp_path / "told.json", tmp_path / "kept.jsonl"
    files = ("--out", str(out), "--json", str(told), "--resume", str(kept))
    assert run(monkeypatch, *QUICK, "--budget", "1000", *files) == 0
    record = json.loads(told.read_text())
    rows = {(row["keep"], row["score"]): row for row in record["rows"]}
    assert len(rows) == 4
    assert abs(rows[1.0, "none"]["perplexity_change"]) < 1e-9
    assert rows[0.5, "none"]["rows_seen"] < 0.9
    assert rows[0.5, "none"]["dropped_probability"] == 0
    assert 0 < rows[0.5, "attention"]["dropped_probability"] < 1
    assert rows[0.5, "none"]["pass_cycles"] < record["dense"]["pass_cycles"]
    assert [row["cycles_per_token"] for row in record["rows"]] == sorted(row["cycles_per_token"]
                                                                         for row in record["rows"])
    assert record["chosen"]["keep"] == record["rows"][0]["keep"]
    assert load_pruning(out).keep == record["chosen"]["keep"]
    assert len(kept.read_text().splitlines()) == 5
    assert "within 1000 percent" in capsys.readouterr().out
    monkeypatch.setattr("gemmule.sw.workloads.schedules.measured", lambda *_: pytest.fail("measured again"))
    assert run(monkeypatch, *QUICK, "--budget", "0", *files) == 0
    assert json.loads(told.read_text())["chosen"]["keep"] == 1.0


def test_grid_of_pages() -> None:
    """Of pages a size stands in the place of an interval; no size counts where there are none."""
    found = grid(Pruning(keep=1.0, first=2, last=8, whole=32), [0.5, 40], [8, 16], ["pages", "none"], [4, 8])
    assert [(one.keep, one.every, one.page, one.score, one.last) for one in found] == [
        *((keep, every, 8, "none", 8) for keep in (0.5, 40) for every in (8, 16)),
        *((keep, 32, page, "pages", 8) for keep in (0.5, 40) for page in (4, 8))]
    assert len(grid(found[0], [0.5], [8], ["attention"], [4, 8])) == 1


@pytest.mark.slow
def test_chooses_heavy_hitters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Schedules whose sums go on have selecting passes of their own."""
    out, told = tmp_path / "schedule.yaml", tmp_path / "told.json"
    assert run(monkeypatch, *QUICK[:1], "--keep", "0.5", "--score", "heavy,attention", *QUICK[3:], "--budget", "1000",
               "--out", str(out), "--json", str(told)) == 0
    rows = {row["score"]: row for row in json.loads(told.read_text())["rows"]}
    assert rows["heavy"]["nats"] != rows["attention"]["nats"]
    assert rows["heavy"]["rows"] == rows["attention"]["rows"]
    assert load_pruning(out).score in rows


@pytest.mark.slow
def test_chooses_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A schedule of pages is written as ``--prune`` takes it."""
    out, told = tmp_path / "schedule.yaml", tmp_path / "told.json"
    assert run(monkeypatch, *QUICK[:1], "--keep", "0.5", "--score", "pages", "--page", "16", *QUICK[5:],
               "--budget", "1000", "--out", str(out), "--json", str(told)) == 0
    (row,) = json.loads(told.read_text())["rows"]
    assert (row["score"], row["page"], row["selection_cycles"]) == ("pages", 16, 0)
    assert row["rows_seen"] < 0.9
    assert load_pruning(out) == Pruning(keep=0.5, first=4, last=16, whole=32, score="pages", page=16)


def test_best_and_pareto() -> None:
    dense = {"nats": 2.0, "cycles_per_token": 100}
    points = ((2.0, 90, 0.9), (2.2, 60, 0.5), (2.3, 70, 0.6), (2.05, 80, 0.7))
    rows = with_pareto([{"nats": nats, "cycles_per_token": cycles, "keep": keep, "score": "none"}
                        for nats, cycles, keep in points], dense)
    assert [(row["keep"], row["pareto"]) for row in rows] == [(0.5, True), (0.6, False), (0.7, True), (0.9, True)]
    assert [best(rows, budget)["keep"] for budget in (0.0, 0.06, 0.3)] == [0.9, 0.7, 0.5]
    assert rows[0]["speedup"] == 100 / 60
    with pytest.raises(InputError, match=r"--budget 1 is kept by no schedule: the least rise is 5\.13 percent"):
        best(rows[:3], 0.01)


@pytest.mark.parametrize(("options", "message"), [
    (("--keep", "2.0"), "keep must be a share above 0"), (("--keep", "many"), "--keep must be numbers"),
    (("--score", "magic"), "--score must be one of attention, heavy, none, pages"),
    (("--every", "0"), "every must be a whole number"),
    (("--window", "100000"), "--window must be at most 1024 tokens"), (("--figure", "a.txt"), "--figure must end in"),
    (("--first", "20"), "whole must be at least first [+] last"),
    (("--model", "small"), "does not tell the scale of its logits")])
def test_refuses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, str],
                 message: str) -> None:
    assert run(monkeypatch, "prune", *options) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert sum("error" in line for line in told) == 1
    assert re.search(message, " ".join(told))
