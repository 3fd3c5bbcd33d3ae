"""`gemmule sweep`: files that are refused, points kept and gone on with, runs compared, engines that agree."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gemmule.sw.commands.sweep import sweep
from gemmule.sw.errors import InputError
from gemmule.sw.sweeps import engines
from gemmule.sw.sweeps.engines import evaluated
from gemmule.sw.sweeps.sweep import Point, Store, evaluate, pareto, points
from gemmule.sw.sweeps.sweep_file import Workload, read_sweep

from .test_cli import run

GRID = """\
config: tiny
fields:
  dim: [2, 4]
  bus_bytes: [2, 4]   # 4 on a mesh of 2 breaks a rule
  dram: {latency: [30, 60]}
workloads:
  - gemm: 9x8x7
  - gemm: 4x4x4
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID)
    return tmp_path / "grid.yaml"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Points are evaluated in this process, and counted."""
    seen: list[Any] = []

    def alone(function: Callable[[Any], Any], tasks: list[Any], **options: Any) -> Iterator[Any]:
        for task in tasks:
            seen.append(task)
            yield function(task)

    monkeypatch.setattr(engines, "evaluated", alone)
    return seen


def test_points(grid: Path) -> None:
    every = points(read_sweep(grid))
    assert len(every) == 16 == len({point.key for point in every})
    assert json.loads(every[0].fields) == {"config": "tiny", "dim": 2, "bus_bytes": 2, "dram.latency": 30}


@pytest.mark.parametrize(("old", "new", "message"), [
    ("dim: [2, 4]", "dimm: [2]", "grid.yaml:3: dimm must be a field of a configuration"),
    ("dim: [2, 4]", "dim: [2, 2]", "grid.yaml:3: dim must have values, each once, not '[2, 2]'"),
    ("dim: [2, 4]", "dim: []", "grid.yaml:3: dim must have values, each once"),
    ("dim: [2, 4]", "dim: [[2]]", "grid.yaml:3: fields.dim must be a list of values, not of lists"),
    ("latency:", "name:", "grid.yaml:5: dram.name must be a field"),
    ("gemm: 9x8x7", "gemm: 9x8", "gemm must be MxKxN"),
    ("gemm: 9x8x7", "arch: gpt5", "arch must be one of bert-base, "),
    ("gemm: 9x8x7", "seq: 5", "a workload must be a gemm or an arch, one of both"),
    ("gemm: 9x8x7", "{gemm: 9x8x7, seq: 5}", "seq is not for gemm; leave it out"),
    ("gemm: 9x8x7", "{gemm: 9x8x7, sequ: 5}", "grid.yaml:7: workloads.0.sequ: unknown key; did you mean seq?"),
    ("workloads:", "workload:", "grid.yaml: workloads is missing"),
    ("[30, 60]", "&a [30, 60]", "grid.yaml:5: anchors and aliases"),
    ("[30, 60]", str(list(range(4, 60000))), "must hold at most 65,536 bytes")])
def test_files_that_are_refused(grid: Path, old: str, new: str, message: str) -> None:
    grid.write_text(GRID.replace(old, new))
    with pytest.raises(InputError) as error:
        read_sweep(Path("grid.yaml"))
    assert message in str(error.value)


def test_too_many_points(grid: Path) -> None:
    grid.write_text(GRID.replace("[30, 60]", str(list(range(4, 6000)))).replace("[2, 4]", "[1, 2, 3, 4, 5]"))
    with pytest.raises(InputError, match="a sweep must have at most 100,000 points, not 299,800"):
        read_sweep(grid)


def test_a_point_that_breaks_a_rule_or_does_not_fit() -> None:
    row = evaluate(Point('{"bus_bytes": 4, "config": "tiny", "dim": 2}', Workload(gemm="4x4x4")))
    assert row["error"] == "config: bus_bytes must not exceed dim = 2, not 4"
    assert row["cycles"] is row["config_sha256"] is None
    row = evaluate(Point('{"config": "tiny"}', Workload(arch="bert-base", phase="decode")))
    assert row["cycles"] is None
    assert row["error"].startswith("--phase must be encode for bert-base")
    assert row["mesh"] == 16


def test_interrupted_and_gone_on_with(grid: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The points before the interrupt are kept; then the others run; the whole is that of a run without one."""
    whole = engines.evaluated

    def interrupted(function: Callable[[Any], Any], tasks: list[Any], **options: Any) -> Iterator[Any]:
        yield from whole(function, tasks[:5], **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engines, "evaluated", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sweep(Path("grid.yaml"), db=None, export=None, figure=None, run="a", compare="", json=None)
    assert len(Store(Path("grid.sqlite")).done("a")) == 5 == len(here)
    assert run(monkeypatch, "sweep", "grid.yaml", "--run", "a", "--json", "a.json", "--export", "a.csv") == 0
    assert run(monkeypatch, "sweep", "grid.yaml", "--run", "b", "--json", "b.json", "--compare", "a") == 0
    assert len(here) == 16 + 16
    first, second = (json.loads(Path(name).read_text()) for name in ("a.json", "b.json"))
    assert (first["points"], first["evaluated"], second["evaluated"]) == (16, 11, 16)
    for one, other in zip(first["rows"], second["rows"], strict=True):
        for key in ("run", "seconds", "finished"):
            del one[key], other[key]
        assert one == other
    assert second["differing"] == []
    assert sum(row["error"] is not None for row in second["rows"]) == 4
    found = list(csv.DictReader(Path("a.csv").read_text().splitlines()))
    assert [int(row["cycles"] or 0) for row in found] == [row["cycles"] or 0 for row in first["rows"]]
    assert found[0]["config.dram.latency"] == "30"
    assert run(monkeypatch, "sweep", "grid.yaml", "--run", "a") == 0
    assert len(here) == 32  # nothing was left to do


def test_runs_are_compared(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.sqlite")
    row = evaluate(Point('{"config": "tiny"}', Workload(gemm="4x4x4")))
    store.add("old", row)
    store.add("new", row | {"cycles": 2 * row["cycles"]})
    assert store.runs() == ["old", "new"]
    (found,) = store.compared("old", "new")
    assert (found["before"], found["after"], found["ratio"]) == (row["cycles"], 2 * row["cycles"], 2.0)
    assert store.compared("old", "old") == []


def test_pareto() -> None:
    rows = [{"name": "a", "cycles": cycles, "mesh": mesh} for cycles, mesh in
            ((10, 4), (9, 4), (9, 16), (5, 16), (6, 64), (None, 64), (5, 16))]
    rows.append({"name": "b", "cycles": 99, "mesh": 4})
    assert pareto(rows, "mesh") == [False, True, False, True, False, False, True, True]


@pytest.mark.parametrize(("arguments", "message"), [
    (["none.yaml"], "none.yaml: "), (["grid.yaml", "--db", "grid.yaml"], "--db must name a file for results"),
    (["grid.yaml", "--export", "a.txt"], "--export must end in .csv or .parquet, not 'a.txt'"),
    (["grid.yaml", "--engine", "spark"], "--engine must be one of local, ray, dask, not 'spark'"),
    (["grid.yaml", "--compare", "x"], "--compare must be a run of grid.sqlite (none yet), not 'x'")])
def test_errors_are_one_line(grid: Path, monkeypatch, capsys, arguments: list[str], message: str) -> None:
    assert run(monkeypatch, "sweep", *arguments) == 2
    text = capsys.readouterr().err
    assert message in text
    assert len(text.splitlines()) == 1


def test_another_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as other:
        other.execute("CREATE TABLE points (x)")
    with pytest.raises(InputError, match="--db must name a file for results, or one that a sweep wrote"):
        Store(tmp_path / "a.sqlite")


def _double(value: int) -> int:
    return 2 * value


@pytest.mark.parametrize("engine", ["local", pytest.param("dask", marks=pytest.mark.slow)])
def test_engines_give_all(engine: str) -> None:
    """Ray is not among them: it is too large to install for a test."""
    assert sorted(evaluated(_double, range(9), engine=engine, jobs=2)) == list(range(0, 18, 2))
