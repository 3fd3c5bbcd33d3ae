"""`gemmule study streaming`: costs of steps by shape, on small shapes, and the committed result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.config import load_config
from gemmule.sw.studies.streaming import GAMMA, PUBLISHED, TOPS, Published, Shapes, streaming_rows
from gemmule.sw.workloads.streaming import Cost, ShapeCosts, tree_nodes

ROOT = Path(__file__).resolve().parents[2]
BASE = load_config("base")


def small(layers: int, name: str) -> Architecture:
    """Of 64 columns."""
    found = architecture("opt-125m").resized("layers", layers).resized("hidden", 64)
    return replace(found, name=name, config=found.config | {"vocab_size": 50})


def test_costs_by_hand() -> None:
    """Rows beyond twice the mesh's are on the line; streams add their layers, an exit and a launch."""
    assert [tree_nodes(top, 4) for top in (1, 2, 3)] == [5, 31, 121]
    assert (Cost(10, 512, 64) + Cost(10, 512, 64) * 3).utilization(BASE) == 2048 / (40 * 256)
    assert Cost(1, 64, 32).operations_per_byte == 4
    costs = ShapeCosts(small(3, "small"), BASE, 32, 64)
    dim = BASE.dim
    one, two = costs.timed(dim), costs.timed(2 * dim)
    assert costs.rows(dim) == one
    assert costs.rows(4 * dim).cycles == pytest.approx(one.cycles + 3 * (two.cycles - one.cycles))
    assert costs.timed(1, 2).macs < costs.timed(1).macs
    exits = costs.product(8, 64, 50)
    assert exits.macs == 8 * 64 * 50
    same = costs.streamed(8, 8, 2) - costs.timed(8)
    assert same.cycles == exits.cycles + BASE.host.launch_cycles, "streams without rows"
    assert costs.streamed(8, dim, 2).macs - costs.timed(8).macs == exits.macs + (
        costs.timed(dim, 2).macs - costs.timed(8, 2).macs)
    assert costs.heads(3).macs == 3 * 64 * (64 + 50)


@pytest.mark.parametrize("name", [name for name, found in PUBLISHED.items() if found.medusa])
def test_extra_parameters_are_the_published_ones(name: str) -> None:
    """Both columns, to the digits that are published, follow from sizes alone."""
    costs = ShapeCosts(architecture(name), BASE, 32, 64)
    found = PUBLISHED[name]
    assert found.medusa
    assert found.streaming
    assert float(f"{costs.medusa_parameters(4):.2e}") in (found.medusa[2], found.medusa[2] + 1e6)
    assert float(f"{costs.stream_parameters(20):.3g}") == pytest.approx(found.streaming[2], rel=1e-3)


def test_rows_on_small_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed-ups are published tokens over a step here; a smaller draft model is harder to beat."""
    monkeypatch.setitem(PUBLISHED, "small", Published(
        medusa=(2.0, 3.0, 1e4), streaming=(2.0, 3.5, 1e3), calls=(6.0, 20.0, 7.0), milliseconds=(200.0, 100.0)))
    shapes = Shapes((small(4, "small"),), small(3, "drafts"), 32, 64, 2)
    rows = {row.setting: row for row in streaming_rows(shapes, BASE)}
    for way, tokens in (("Medusa", 3.0), ("streams", 3.5)):
        step, gain = rows[f"small: a step, {way}"], rows[f"small: speed-up, {way}"]
        assert step.here > 1
        assert gain.here == pytest.approx(tokens / step.here)
        assert gain.published == 2.0
    costs = ShapeCosts(shapes.targets[0], BASE, 32, 64)
    two = 6 * (costs.timed(GAMMA + 1).cycles + BASE.host.step_cycles) + 20 * ShapeCosts(
        shapes.draft, BASE, 32, 64).timed(1).cycles
    one = 7 * (costs.streamed(BASE.dim // 2, BASE.dim, 2).cycles + BASE.host.step_cycles)
    ratio = rows["small: with a draft model over with streams"]
    assert (ratio.published, ratio.here) == (2.0, pytest.approx(two / one))
    sweep = [rows[f"k = {top}: a step, small"].here for top in TOPS]
    assert sweep == sorted(sweep)
    assert rows["operations per byte, ar"].here < rows["operations per byte, streams"].here


def test_committed_result() -> None:
    """What the page tells stands in the result, whose speed-ups are quotients of what it tells."""
    found = json.loads((ROOT / "docs" / "results" / "study_streaming.json").read_text())
    rows = {row["setting"]: row for row in found["rows"]}
    for name, published in PUBLISHED.items():
        for way, part in (("Medusa", published.medusa), ("streams", published.streaming)):
            assert rows[f"{name}: a step, {way}"]["here"] > 1
            if part:
                assert rows[f"{name}: speed-up, {way}"]["here"] == pytest.approx(
                    part[1] / rows[f"{name}: a step, {way}"]["here"])
    drafts = [row["here"] for name, row in rows.items() if name.startswith("break-even")]
    assert drafts == sorted(drafts)
    assert drafts[-1] < 1
