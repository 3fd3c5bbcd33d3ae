"""cocotb bench of the vector unit (``hw/vector/vector.py``): every operation on random data, cycles by hand.

The unit has no backpressure: ports are claimed before a command starts, and one command runs at a time.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from support import CONFIG, Issuer, Memory, start, until

from gemmule.hw.interfaces import vector_layout
from gemmule.isa import AddFlag as A
from gemmule.isa import ColumnFlag as C
from gemmule.isa import NormFlag as N
from gemmule.isa import ProductFlag as P
from gemmule.isa import RequantFlag as R
from gemmule.isa import SoftmaxFlag as S
from gemmule.isa import Unit, VOp, legal_flags
from tests.hw.vector.bench import make, scale, shape
from tests.hw.vector.reference import Device

LAYOUT = vector_layout(CONFIG)
DIM = CONFIG.dim
ONE = {"zero": 0, "after": 0, "op": int(VOp.REQUANT), "flags": 0, "m": 4, "n": DIM, "src0": 0, "src0_stride": 8,
       "src1": 100, "aux": 0,
       "dst": 600, "dst_stride": 8, "mult": 1, "shift": 6, "shift2": 0, "context": 0, "period": 0, "apart": 0}


def bits(*flags: int) -> int:
    return sum(1 << flag for flag in flags)


class Bench:
    """The unit between both memories, whose contents are the reference's; runs all commands."""

    def __init__(self, dut: Any, device: Device, commands: list[dict[str, int]]) -> None:
        self.device = device
        self.scratchpad = Memory(dut, device.spm.copy(), reads={"r0": 1, "r1": 1}, writes=["w"])
        accumulator = device.acc.astype("<i4").view(np.uint8)
        self.accumulator = Memory(dut, accumulator, reads={"acc": 1}, writes=["acc_w"], lane=4)
        self.issuer = Issuer(dut, LAYOUT, commands, limit=1)
        for command in commands:
            memory = device.acc if command["op"] == VOp.RESCALE else device.spm
            for row, line in device.run(command).items():
                memory[row] = line

    def check(self) -> None:
        np.testing.assert_array_equal(self.scratchpad.rows, self.device.spm)
        np.testing.assert_array_equal(self.accumulator.rows.view("<i4"), self.device.acc)
        assert self.issuer.releases == [(cycle, 7) for cycle in self.issuer.finishes]


async def run(dut: Any, device: Device, commands: list[dict[str, int]]) -> Bench:
    await start(dut)
    bench = Bench(dut, device, commands)
    await until(dut, lambda: bench.issuer.done, 100000)
    await RisingEdge(dut.clk)
    bench.check()
    return bench


def prerequisites(op: VOp, flags: set[int]) -> list[VOp]:
    """Operations that set up the statistics or the table that a command uses."""
    if op is VOp.NORM_APPLY:
        return [VOp.NORM_STAT]
    if op in (VOp.SOFTMAX_EXP, VOp.RESCALE):
        return [VOp.SOFTMAX_MAX]
    if op is VOp.SOFTMAX_NORM:
        return [VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP]
    table = []
    if R.LOOKUP in flags and op in (VOp.REQUANT, VOp.ADD):
        table = [VOp.WORD_TABLE if op is VOp.REQUANT and R.WIDE in flags else VOp.TABLE]
    return table + ([VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP] if op is VOp.REQUANT and R.ROW in flags else [])


def consequences(op: VOp) -> list[tuple[VOp, set[int]]]:
    """Operations that show what a command left in its context or in a table."""
    return {
        VOp.SOFTMAX_MAX: [(VOp.SOFTMAX_EXP, set()), (VOp.RESCALE, set())],
        VOp.SOFTMAX_EXP: [(VOp.REQUANT, {R.ROW, R.WIDE})], VOp.ABSMAX: [(VOp.REQUANT, {R.ROW, R.WIDE})],
        VOp.NORM_STAT: [(VOp.NORM_APPLY, {N.MEAN, N.WIDE})], VOp.TABLE: [(VOp.REQUANT, {R.LOOKUP})],
        VOp.WORD_TABLE: [(VOp.REQUANT, {R.LOOKUP, R.WIDE})],
    }.get(op, [])


def known() -> list[dict[str, int]]:
    """Set both tables and every row of two contexts, which outlive a reset and the test before."""
    rows = {**ONE, "m": CONFIG.stat_rows, "src0_stride": 2 * CONFIG.stat_rows, "shift": 20}
    parts = [(VOp.SOFTMAX_MAX, S.ONLINE), (VOp.SOFTMAX_EXP, S.MORE), (VOp.SOFTMAX_EXP, S.ONLINE),
             (VOp.NORM_STAT, N.MEAN)]
    return [{**ONE, "op": VOp.TABLE}, {**ONE, "op": VOp.WORD_TABLE}] + [
        rows | {"op": op, "flags": bits(flag), "context": context} for context in range(2) for op, flag in parts]


@cocotb.test()
@cocotb.parametrize(op=list(VOp))
async def random_commands(dut: Any, op: VOp) -> None:
    """All legal flags and ragged shapes; statistics and the table are set up before they are used."""
    device = Device(CONFIG, np.random.default_rng(20 + op))
    rng, commands = device.rng, known()
    legal = [flags for flags in range(256) if legal_flags(Unit.VECTOR, op, flags)]
    for _ in range(24):
        chosen = int(rng.choice(legal))
        flags = {bit for bit in range(8) if chosen >> bit & 1}
        m, n = shape(rng, DIM)
        chain = [make(device, kind, m=m, n=n) for kind in prerequisites(op, flags)]
        if op is VOp.RESCALE:  # rises of all sizes
            chain[-1]["flags"] = bits(S.ONLINE, *[S.CONTINUE] * int(rng.integers(2)))
        chain.append(make(device, op, flags, m=m, n=n))
        context = {"context": chain[-1]["context"]}
        chain += [make(device, kind, marks, m=m, n=n) for kind, marks in consequences(op)]
        if VOp.SOFTMAX_EXP in (op, *(VOp(c["op"]) for c in chain)):  # the maximum of the very same scores
            first = next(c for c in chain if c["op"] == VOp.SOFTMAX_MAX)
            context |= {name: first[name] for name in ("src0", "src0_stride", "mult", "shift")}
        if op in (VOp.REQUANT, VOp.ROPE, VOp.I_GELU):
            scale(device, chain[-1])
        commands += [
            c | (context if c["op"] in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
                 else {"context": context["context"]})
            for c in chain]
        if op is VOp.ABSMAX:  # the row's own scale stands in the next context
            commands[-1] |= {"context": int(rng.integers(2))}
    await run(dut, device, commands)


@cocotb.test()
async def latency(dut: Any) -> None:
    """Issue to finish with 4 rows of one column group, DIM 4, one divider.

    Reads + 11 for what is written, + 14 for a maximum or a late result, + 7 for a row of the accumulator. A sum of
    squares is ready every 2 cycles from t + 16 on (4 later with a mean) and takes 36 in the divider; a sum of weights
    or a largest value every cycle from t + 15 on and takes 19.
    """
    cases = [
        ({}, 15), ({"flags": bits(R.WIDE)}, 19), ({"flags": bits(R.RESIDUAL)}, 19), ({"flags": bits(R.COLUMN)}, 18),
        ({"flags": bits(R.BIAS)}, 19), ({"flags": bits(R.COLUMN, R.BIAS)}, 22), ({"op": VOp.PRODUCT, "aux": 8}, 15),
        ({"op": VOp.PRODUCT, "aux": 8, "apart": 1}, 19), ({"op": VOp.ADD}, 15),
        ({"op": VOp.PRODUCT, "aux": 8, "flags": bits(P.WIDE)}, 19),
        ({"op": VOp.PRODUCT, "aux": 8, "flags": bits(P.WIDE), "apart": 1}, 27),
        ({"op": VOp.ADD, "flags": bits(A.WIDE)}, 19),
        ({"op": VOp.ROPE}, 27), ({"op": VOp.NORM_STAT}, 160), ({"op": VOp.NORM_APPLY}, 21),
        ({"op": VOp.SOFTMAX_MAX}, 18),
        ({"op": VOp.SOFTMAX_EXP}, 91), ({"op": VOp.TABLE}, 75), ({"op": VOp.WORD_TABLE}, 269),
        ({"op": VOp.NORM_STAT, "flags": bits(N.MEAN)}, 164),
        ({"op": VOp.NORM_STAT, "flags": bits(N.MEAN, N.ROUND)}, 164),
        ({"op": VOp.NORM_APPLY, "flags": bits(N.BIAS, N.WIDE)}, 25), ({"op": VOp.ABSMAX}, 91),
        ({"op": VOp.SOFTMAX_MAX, "flags": bits(S.ONLINE)}, 18), ({"op": VOp.SOFTMAX_EXP, "flags": bits(S.MORE)}, 18),
        ({"op": VOp.SOFTMAX_EXP, "flags": bits(S.ONLINE, S.CONTINUE)}, 91), ({"op": VOp.SOFTMAX_EXP, "period": 2}, 91),
        ({"op": VOp.SOFTMAX_NORM}, 18), ({"op": VOp.SOFTMAX_NORM, "flags": bits(S.WIDE), "period": 1}, 22),
        ({"flags": bits(R.WIDE, R.LOOKUP)}, 22), ({"op": VOp.RESCALE, "dst": 100}, 11), ({"op": VOp.I_GELU}, 18),
        ({"op": VOp.I_GELU, "flags": bits(C.COLUMN, C.BIAS)}, 25),
    ]
    device = Device(CONFIG, np.random.default_rng(2))
    bench = await run(dut, device, [{**ONE, **change} for change, _ in cases])
    issues, finishes = bench.issuer.issues, bench.issuer.finishes
    assert [b - a for a, b in zip(issues, finishes)] == [cycles for _, cycles in cases]
    assert [b - a for a, b in zip(finishes, issues[1:])] == [1] * (len(cases) - 1)


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """27 rows of 3 column groups: a read and, 11 cycles later, a write in every cycle."""
    device = Device(CONFIG, np.random.default_rng(3))
    bench = await run(dut, device, [{**ONE, "m": 9, "n": 3 * DIM, "src0_stride": 16, "dst_stride": 16}])
    t = bench.issuer.issues[0]
    assert bench.accumulator.read_cycles["acc"] == [t + 2 + i for i in range(27)]
    assert bench.scratchpad.write_cycles["w"] == [t + 13 + i for i in range(27)]


@cocotb.test()
async def rescale_rate(dut: Any) -> None:
    """Accumulator rows in place: a read and, 6 cycles later, a write in every cycle; the scratchpad rests."""
    device = Device(CONFIG, np.random.default_rng(4))
    maximum = {**ONE, "op": VOp.SOFTMAX_MAX, "flags": bits(S.ONLINE), "m": 9, "n": 3 * DIM, "src0_stride": 16,
               "shift": 20}
    again = maximum | {"flags": bits(S.ONLINE, S.CONTINUE), "shift": 18}  # rises of a few octaves
    bench = await run(dut, device, [maximum, again, again | {"op": VOp.RESCALE, "dst": 0, "dst_stride": 16}])
    t = bench.issuer.issues[2]
    assert bench.accumulator.read_cycles["acc"][-27:] == [t + 2 + i for i in range(27)]
    assert bench.accumulator.write_cycles["acc_w"] == [t + 8 + i for i in range(27)]
    assert bench.scratchpad.write_cycles["w"] == []
