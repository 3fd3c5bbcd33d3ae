"""docs/sweeps.md: its grid gives the table that it shows, its query finds what it says, its numbers were measured."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

from gemmule.sw.sweeps import engines
from gemmule.sw.sweeps.sweep import COLUMNS

from .test_cli import run

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "sweeps.md").read_text("utf-8")


def block(begin: str) -> str:
    return PAGE.partition(f"```{begin}\n")[2].partition("```")[0]


def test_the_table_and_the_query(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(engines, "evaluated", lambda function, tasks, **options: map(function, tasks))
    Path("grid.yaml").write_text(block("yaml"))
    assert run(monkeypatch, "sweep", "grid.yaml", "--run", "first") == 0
    seen = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    command, *shown = re.search(r"```\n(\$ gemmule sweep .*?)```", PAGE, re.S)[1].splitlines()
    assert command == "$ gemmule sweep grid.yaml --run first --jobs 2"
    assert seen == shown
    with sqlite3.connect("grid.sqlite") as points:
        points.execute(f"INSERT INTO points SELECT 'second', {', '.join(COLUMNS[1:])} FROM points")
        points.execute("UPDATE points SET cycles = cycles + 1 WHERE run = 'second' AND mesh = 64 AND name LIKE '%int4'")
        found = points.execute(block("sql")).fetchall()
    points.close()
    assert len(found) == 4
    assert all(after == before + 1 for _, _, before, after in found)
    assert all(f"`{name}`" in PAGE for name in COLUMNS)


def test_the_numbers_are_the_measured_ones() -> None:
    r = json.loads((DOCS / "results" / "sweep.json").read_text())
    words = " ".join(PAGE.split())
    assert f"has {r['configurations']} configurations and two networks" in words
    assert f"of {r['points']} points {r['kept']} were kept at the interrupt, unchanged at the end, and the" in words
    assert f"the other {r['resumed']} ran then; on Dask all {r['dask_evaluated']} ran, and" in words
    assert f"and {r['dask_differing']} differ." in words
    assert r["interrupted_exit_code"] == 130
    assert r["kept_rows_unchanged"]
    assert r["kept"] + r["resumed"] == r["points"] == r["rows"] == r["dask_evaluated"]
    assert r["configurations"] >= 200
