"""A design space: every configuration with every workload, each point evaluated once and kept in a SQLite file."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from gemmule import __version__
from gemmule.compiler.errors import CompileError
from gemmule.compiler.sources import sources
from gemmule.config import PRESETS, ConfigError, load_config
from gemmule.sw.errors import InputError
from gemmule.sw.sweeps.sweep_file import Sweep, Workload

__all__ = ["COLUMNS", "COMPARE", "Point", "Store", "default_run", "evaluate", "pareto", "points"]

TABLE = """
CREATE TABLE IF NOT EXISTS points (
    run TEXT NOT NULL,             -- label of the run; by default what the code is
    config TEXT NOT NULL,          -- fields that the sweep sets, as JSON
    workload TEXT NOT NULL,        -- as JSON
    config_sha256 TEXT,            -- of all fields; NULL: they break a rule
    name TEXT NOT NULL,            -- of the workload, for people
    error TEXT,                    -- why there are no numbers
    mesh INTEGER, memory_bits INTEGER, cycles INTEGER, milliseconds REAL, utilization REAL, roofline_fraction REAL,
    dram_bytes INTEGER, macs INTEGER, seconds REAL NOT NULL, version TEXT NOT NULL, finished TEXT NOT NULL,
    PRIMARY KEY (run, config, workload)
)"""
COLUMNS = ("run", "config", "workload", "config_sha256", "name", "error", "mesh", "memory_bits", "cycles",
           "milliseconds", "utilization", "roofline_fraction", "dram_bytes", "macs", "seconds", "version", "finished")


@dataclass(frozen=True)
class Point:
    """One configuration with one workload."""

    fields: str
    """Fields that the sweep sets, and ``config``, the preset or file that has the others, as JSON, keys sorted."""
    workload: Workload

    @property
    def key(self) -> tuple[str, str]:
        """What the point is known by within a run."""
        return self.fields, self.workload.text


def points(sweep: Sweep) -> list[Point]:
    """All, configurations outermost. A base that is a file is known by its fields too: they may change."""
    found = []
    base = {"config": sweep.config}
    if sweep.config not in PRESETS:
        base["base_sha256"] = load_config(sweep.config).sha256
    for values in product(*sweep.fields.values()):
        fields = dict(zip(sweep.fields, values, strict=True)) | base
        found += [Point(json.dumps(fields, sort_keys=True), workload) for workload in sweep.workloads]
    return found


def default_run() -> str:
    """The label of a run: version and sources, so that another compiler or model is another run."""
    return f"{__version__}-{sources().hex()[:10]}"


def _device(point: Point) -> dict[str, Any]:
    """All fields of the device."""
    fields = json.loads(point.fields)
    fields.pop("base_sha256", None)
    values = load_config(fields.pop("config")).model_dump() | {"name": "sweep"}
    for name, value in fields.items():
        first, _, inner = name.partition(".")
        if inner:
            values[first][inner] = value
        else:
            values[first] = value
    return values


def evaluate(point: Point) -> dict[str, Any]:
    """The row of a point, but for its run; what does not fit or breaks a rule has an ``error``. Runs in any process."""
    begin = time.perf_counter()
    row: dict[str, Any] = dict.fromkeys(COLUMNS[1:]) | {
        "config": point.fields, "workload": point.workload.text, "name": point.workload.name, "version": __version__}
    try:
        device = load_config(_device(point))
        row |= {"config_sha256": device.sha256, "mesh": device.dim ** 2,
                "memory_bits": 8 * 1024 * (device.spm_kib + device.acc_kib)}
        row |= point.workload.run(device)
    except (CompileError, ConfigError, InputError) as error:
        row["error"] = str(error)
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return row | {"seconds": time.perf_counter() - begin, "finished": finished}


class Store:
    """The SQLite file of one or several runs; a row is there whole as soon as it is added.

    Raises:
        InputError: the file is no such database, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._mending():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.connection = sqlite3.connect(path, isolation_level=None)  # every statement is a transaction
            self.connection.row_factory = sqlite3.Row
            self.connection.execute(TABLE)
            self.connection.execute(f"SELECT {', '.join(COLUMNS)} FROM points LIMIT 0")

    @contextmanager
    def _mending(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"--db must name a file for results, or one that a sweep wrote, not {str(self.path)!r}: "
                             f"{error}") from None

    def add(self, run: str, row: dict[str, Any]) -> None:
        """Keep a row of a run."""
        with self._mending():
            self.connection.execute(
                f"INSERT OR REPLACE INTO points ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})",
                [(row | {"run": run})[name] for name in COLUMNS])

    def done(self, run: str) -> set[tuple[str, str]]:
        """Keys of a run's points."""
        found = self.connection.execute("SELECT config, workload FROM points WHERE run = ?", [run])
        return {(row["config"], row["workload"]) for row in found}

    def rows(self, run: str, chosen: Sequence[Point]) -> list[dict[str, Any]]:
        """Rows of these points, in their order; those that are missing are left out."""
        found = {(row["config"], row["workload"]): dict(row) for row in self.connection.execute(
            "SELECT * FROM points WHERE run = ?", [run])}
        return [found[point.key] for point in chosen if point.key in found]

    def runs(self) -> list[str]:
        """Labels of all runs, the oldest first."""
        found = self.connection.execute("SELECT run FROM points GROUP BY run ORDER BY min(rowid)")
        return [row["run"] for row in found]

    def compared(self, first: str, second: str) -> list[dict[str, Any]]:
        """Points of both runs whose cycles or errors differ."""
        return [dict(row) for row in self.connection.execute(COMPARE, [first, second])]

    def close(self) -> None:
        """No more."""
        self.connection.close()


COMPARE = """
SELECT a.name, a.config, a.cycles AS before, b.cycles AS after, round(1.0 * b.cycles / a.cycles, 4) AS ratio,
       a.error AS error_before, b.error AS error_after
FROM points a JOIN points b USING (config, workload)
WHERE a.run = ? AND b.run = ? AND (a.cycles IS NOT b.cycles OR a.error IS NOT b.error) ORDER BY ratio"""


def pareto(rows: Sequence[dict[str, Any]], cost: str) -> list[bool]:
    """Which rows no other one of their workload beats: none has as few cycles at less ``cost``, or fewer at as much."""
    def beaten(row: dict[str, Any]) -> bool:
        return any(other["name"] == row["name"] and other["cycles"] is not None
                   and other["cycles"] <= row["cycles"] and other[cost] <= row[cost]
                   and (other["cycles"], other[cost]) != (row["cycles"], row[cost]) for other in rows)

    return [row["cycles"] is not None and not beaten(row) for row in rows]

