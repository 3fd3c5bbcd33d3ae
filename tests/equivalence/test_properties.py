"""A row's result on the RTL is the same, bit for bit, whatever surrounds the row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmule import numerics
from gemmule.operations import EXPONENTIALS
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

from .mutant_programs import SMALL
from .mutant_rules import RULES
from .mutation import mutated
from .rows import MASKED, Attended, Place, argmax, attend, normalize

pytestmark = [pytest.mark.rtl, pytest.mark.slow]

EXAMPLES = settings(derandomize=True, max_examples=12, deadline=None, database=None)
SEEDS = st.integers(0, 1 << 16)
ROWS = st.integers(1, 6).flatmap(lambda rows: st.tuples(st.just(rows), st.integers(0, rows - 1)))
CUTS = st.lists(st.integers(1, 19), min_size=1, max_size=2, unique=True).map(tuple)


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlDevice]:
    with RtlDevice(SMALL, watchdog=1_000_000) as device:
        yield device


@st.composite
def places(draw: st.DrawFn, **chosen: st.SearchStrategy) -> Place:
    """Other rows, another place; ``chosen`` is what else differs."""
    rows, row = draw(ROWS)
    return Place(seed=draw(SEEDS), rows=rows, row=row, context=draw(st.integers(0, SMALL.stat_contexts - 1)),
                 **{name: draw(strategy) for name, strategy in chosen.items()})


@st.composite
def operands(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Scores, of which many are equal or far apart, and V."""
    rng, n = np.random.default_rng(draw(SEEDS)), draw(st.integers(1, 14))
    bits = draw(st.sampled_from((20, 26, 29, 31)))
    scores = rng.integers(-(1 << bits), 1 << bits, n) & -(1 << draw(st.integers(0, bits)))
    return scores, rng.integers(-128, 128, (n, draw(st.integers(1, 6)))).astype(np.int8)


@st.composite
def vectors(draw: st.DrawFn) -> np.ndarray:
    """int16 values, of which many are equal or among the extremes."""
    low, high = draw(st.sampled_from(((-32768, 32767), (-3, 3), (32764, 32767), (-32768, -32766))))
    return np.random.default_rng(draw(SEEDS)).integers(low, high + 1, draw(st.integers(1, 18)))


def test_the_row_alone_is_what_the_definitions_say(rtl: RtlDevice) -> None:
    rng = np.random.default_rng(3)
    scores, values = rng.integers(-(1 << 30), 1 << 30, 11), rng.integers(-128, 128, (11, 5)).astype(np.int8)
    t, seen = numerics.scores(scores[None], 1, 18), np.array([11])
    maximum = numerics.row_max(t, seen)
    weights, total = numerics.row_probabilities(t, maximum, seen)
    ratio = numerics.softmax_reciprocal(total)
    context = weights @ values.astype(np.int64)
    assert attend(rtl, Place(), scores, values) == Attended(
        weights[0].tolist(), numerics.row_normalized(t, maximum, seen, *ratio, wide=True)[0].tolist(),
        context[0].tolist(), numerics.saturate(numerics.requant_row(context, *ratio, 40000, 16), 8)[0].tolist(),
        leaked=False)
    x, gamma, beta = (rng.integers(-(1 << bits), 1 << bits, 11) for bits in (15, 15, 27))
    s, r, h = numerics.norm_statistic(x[None], 3, 20, mean=True)
    expected = numerics.normalize(x[None], s, r, h, gamma, 12, beta=beta, bits=16)[0] & 65535
    assert normalize(rtl, Place(), x, gamma, beta, mean=True, wide=True) == expected.tolist()
    assert argmax(rtl, Place(), x) == int(x.argmax())


@EXAMPLES
@given(operands(), places())
def test_other_rows(rtl: RtlDevice, row: tuple[np.ndarray, np.ndarray], place: Place) -> None:
    assert attend(rtl, place, *row) == attend(rtl, Place(), *row)


@EXAMPLES
@given(operands(), places(mask=st.sampled_from(("causal", "tree")), hidden=st.integers(0, 5), cuts=CUTS | st.just(())))
def test_masked_columns(rtl: RtlDevice, row: tuple[np.ndarray, np.ndarray], place: Place) -> None:
    assert attend(rtl, place, *row) == attend(rtl, Place(), *row)


@EXAMPLES
@given(operands(), places(shuffled=st.just(True), cuts=CUTS | st.just(())), st.integers(0, len(EXPONENTIALS) - 1))
def test_order_of_columns(rtl: RtlDevice, row: tuple[np.ndarray, np.ndarray], place: Place, kind: int) -> None:
    assert attend(rtl, place, *row, kind=kind) == attend(rtl, Place(), *row, kind=kind)


@EXAMPLES
@given(operands(), places(shuffled=st.booleans(), mask=st.sampled_from(("none", "causal", "tree")),
                          hidden=st.integers(0, 5), cuts=CUTS))
def test_online(rtl: RtlDevice, row: tuple[np.ndarray, np.ndarray], place: Place) -> None:
    """With one pass the pieces matter, but neither the order of columns within one nor what is masked."""
    seen = [sorted(slot for slot in piece if slot != MASKED) for piece in place.pieces(len(row[0]))]
    alone = attend(rtl, Place(), *row, online=True, pieces=[piece for piece in seen if piece])
    assert attend(rtl, place, *row, online=True) == alone


@EXAMPLES
@given(operands(), places(cuts=CUTS))
def test_pieces(rtl: RtlDevice, row: tuple[np.ndarray, np.ndarray], place: Place) -> None:
    assert attend(rtl, place, *row) == attend(rtl, Place(), *row)


@EXAMPLES
@given(vectors(), SEEDS, st.booleans(), st.booleans(), st.booleans(), places())
def test_norm_of_a_row(
    rtl: RtlDevice, x: np.ndarray, seed: int, mean: bool, wide: bool, bias: bool, place: Place,
) -> None:
    rng = np.random.default_rng(seed)
    gamma, beta = (rng.integers(-(1 << bits), 1 << bits, len(x)) for bits in (15, 27))
    kind = {"gamma": gamma, "beta": beta if bias else None, "mean": mean, "wide": wide}
    assert normalize(rtl, place, x, **kind) == normalize(rtl, Place(), x, **kind)


@EXAMPLES
@given(vectors(), places(cuts=CUTS | st.just(())))
def test_argmax_of_a_row(rtl: RtlDevice, x: np.ndarray, place: Place) -> None:
    assert argmax(rtl, place, x) == argmax(rtl, Place(), x)


BROKEN = {
    "causal": Place(rows=4, row=1, mask="causal"), "tree: bit order": Place(rows=6, row=2, mask="tree", hidden=3),
    "tree": Place(rows=3, row=2, mask="tree", hidden=2), "sum of pieces": Place(cuts=(5,)),
    "maximum of pieces": Place(cuts=(9,)), "causal: after": Place(rows=4, row=1, mask="causal", cuts=(4,)),
}
"""Mutants of ``mutant_rules.py``, and where a row's result is then another one."""


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_devices_break_the_properties(rule: str) -> None:
    rng = np.random.default_rng(5)
    row = rng.integers(-(1 << 29), 1 << 29, 12), rng.integers(-128, 128, (12, 4)).astype(np.int8)
    model = Simulator(SMALL, dram_bytes=1 << 16)
    assert attend(model, BROKEN[rule], *row) == attend(model, Place(), *row)
    module, old, new = RULES[rule]
    with mutated(f"gemmule.{module}", old, new) as kind:
        mutant = kind(SMALL, dram_bytes=1 << 16)
        assert attend(mutant, BROKEN[rule], *row) != attend(mutant, Place(), *row)
