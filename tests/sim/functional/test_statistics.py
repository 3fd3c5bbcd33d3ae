"""Norms, softmax in pieces and scales of rows on data, against plain loops over the elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.isa import Command, NormFlag, RequantFlag, SoftmaxFlag, Unit, VOp, decode_table, encode_program
from gemmule.resolve import OUT, resolve
from gemmule.sim.functional.execute import execute
from gemmule.sim.functional.memory import Memory

RQ, NM, SM = RequantFlag, NormFlag, SoftmaxFlag

TINY = load_config("tiny")
SMALL = Config(name="small", dim=8, bus_bytes=8, spm_kib=16, spm_banks=4, acc_kib=8, acc_banks=2, dividers=2)
SEED = 17
EMPTY = -(1 << 23)
EXP = [round(65536 * 2.0 ** (-i / 32)) for i in range(33)]


@pytest.fixture(params=(TINY, SMALL), ids=lambda config: config.name)
def memory(request: pytest.FixtureRequest) -> Memory:
    config: Config = request.param
    memory = Memory(config, dram_bytes=64)
    rng = np.random.default_rng(SEED)
    memory.spm[:] = rng.integers(0, 256, memory.spm.shape)
    memory.acc[:] = rng.integers(-40_000, 40_000, memory.acc.shape)
    for name in ("maximum", "reciprocal", "length", "total", "rise", "center", "root", "half"):
        getattr(memory, name)[:] = rng.integers(1, 1 << 15, memory.maximum.shape)
    memory.config = config  # type: ignore[attr-defined]
    return memory


def run(memory: Memory, op: VOp, flags: Sequence[int] = (), lengths: Sequence[int] = (), **values: int) -> None:
    table = decode_table(encode_program([Command.make(Unit.VECTOR, op=op, flags=flags, **values)]))
    registers = np.zeros(16, dtype=np.int64)
    registers[1:1 + len(lengths)] = lengths
    none = np.zeros(32, dtype=np.int64)
    resolved = resolve(table, none, none, registers, memory.config)  # type: ignore[attr-defined]
    assert not resolved[0, OUT["fault"]]
    execute(memory, table, np.arange(1), resolved)


def word(memory: Memory, row: int, stride: int, i: int, j: int) -> int:
    at, lane = row + j // memory.dim * stride + i, j % memory.dim
    value = int(memory.spm[at, lane]) | int(memory.spm[at + stride // 2, lane]) << 8
    return value - (value >> 15 << 16)


def byte(memory: Memory, row: int, stride: int, i: int, j: int) -> int:
    return int(memory.spm[row + j // memory.dim * stride + i, j % memory.dim])


def acc(memory: Memory, row: int, stride: int, i: int, j: int) -> int:
    return int(memory.acc[row + j // memory.dim * stride + i, j % memory.dim])


def half_up(value: int, shift: int) -> int:
    return (value + (1 << shift >> 1)) >> shift


def clip(value: int, bits: int) -> int:
    return min(max(value, -(1 << bits - 1)), (1 << bits - 1) - 1)


def power(distance: int) -> int:
    """2 ** (-distance / 1024) times 2 ** 20, as docs/numerics.md interpolates it."""
    d = min(max(distance, 0), 40 << 10)
    i, w = d % 1024 // 32, d % 32
    return half_up(EXP[i] - half_up((EXP[i] - EXP[i + 1]) * w, 5) << 4, d // 1024)


def masks(m: int, n: int, kind: str, after: int, memory: Memory) -> list[list[bool]]:
    """What row i sees of a piece of n columns, ``after`` columns behind it; bitmaps from row 60."""
    seen = []
    for i in range(m):
        line = []
        for j in range(n):
            token = j - (n + after - m)  # number of the new token in this column, negative before them
            if kind == "causal":
                line.append(token <= i)
            elif kind == "tree" and token >= 0:
                line.append(bool(memory.spm[60 + i, token // 8] >> token % 8 & 1))
            else:
                line.append(True)
        seen.append(line)
    return seen


@pytest.mark.parametrize("mean", [False, True])
def test_norm_statistic(memory: Memory, mean: bool) -> None:
    m, n, context = 4, 14, 2
    untouched = memory.center.copy(), memory.root.copy()
    run(memory, VOp.NORM_STAT, [NM.MEAN] * mean, m=m, n=n, src0=30, src0_stride=16, mult=77, shift=9, context=context)
    for i in range(m):
        x = [word(memory, 30, 16, i, j) for j in range(n)]
        s = sum(x) if mean else 0
        v = n * sum(value * value for value in x) - s * s + (77 << 9)
        h = -16
        while v >= 1 << 32 + 2 * h:  # an even shift brings V below 2 ** 32
            h += 1
        mantissa = v >> 2 * h if h >= 0 else v << -2 * h
        assert 1 << 30 <= mantissa < 1 << 32
        found = memory.center[context, i], memory.root[context, i], memory.half[context, i]
        assert found == (s, (1 << 32) // isqrt(mantissa), h)
    for new, old in zip((memory.center, memory.root), untouched):
        assert (new[context, m:] == old[context, m:]).all()
        assert (new[:context] == old[:context]).all()


def test_norm_statistic_with_a_rounded_mean(memory: Memory) -> None:
    """mu rounds sum / 14, as 37449 / 2**19; s = 14 mu and V = 14 sum (x - mu)**2, without an epsilon."""
    m, n, context = 4, 14, 2
    run(memory, VOp.NORM_STAT, [NM.MEAN, NM.ROUND], m=m, n=n, src0=30, src0_stride=16, mult=37_449, shift=19,
        context=context)
    for i in range(m):
        x = [word(memory, 30, 16, i, j) for j in range(n)]
        mu = half_up(sum(x) * 37_449, 19)
        h = -16
        while (v := n * sum((value - mu) ** 2 for value in x)) >= 1 << 32 + 2 * h:
            h += 1
        mantissa = v >> 2 * h if h >= 0 else v << -2 * h
        found = memory.center[context, i], memory.root[context, i], memory.half[context, i]
        assert found == (n * mu, (1 << 32) // isqrt(mantissa), h)
        assert abs(n * mu - sum(x)) <= 8


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mean", [False, True])
def test_norm_apply(memory: Memory, mean: bool, bias: bool, wide: bool) -> None:
    m, n, context, dim, shift = 3, 11, 1, memory.dim, 8 if wide else 17
    memory.center[context] = 40_000
    memory.root[context], memory.half[context] = 100_000, 4
    each = 6 if bias else 2
    if bias:  # of 24 bits, as large as the products
        for at in range(90, 90 + each * (n // dim + 1), each):
            memory.spm[at + 5] = np.where(memory.spm[at + 4] >= 128, 255, 0)
    expected = []
    for i in range(m):
        for j in range(n):
            p = [int(memory.spm[90 + each * (j // dim) + k, j % dim]) for k in range(each)]
            gamma = p[0] + 256 * p[1]
            gamma -= gamma >> 15 << 16
            beta = sum(value << 8 * k for k, value in enumerate(p[2:]))
            beta -= beta >> 31 << 32
            centred = n * word(memory, 30, 16, i, j) - (40_000 if mean else 0)
            xh = clip(half_up(centred * 100_000, 26), 16)
            expected.append(clip(half_up(xh * gamma + beta, shift), 16 if wide else 8))
    flags = [flag for flag, on in ((NM.MEAN, mean), (NM.BIAS, bias), (NM.WIDE, wide)) if on]
    run(memory, VOp.NORM_APPLY, flags, m=m, n=n, src0=30, src0_stride=16, src1=90, dst=300, dst_stride=12, shift=shift,
        context=context)
    read = word if wide else byte
    found = [read(memory, 300, 12, i, j) for i in range(m) for j in range(n)]
    assert found == [value if wide else value & 255 for value in expected]
    assert len(set(found)) > 20
    assert all(byte(memory, 300 + plane, 12, i, 11) == 0 for plane in ([0, 6] if wide else [0]) for i in range(m))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", ["all", "causal", "tree"])
def test_softmax_in_pieces(memory: Memory, kind: str, wide: bool) -> None:
    """A row of 13 columns in pieces of 6 and 7, the new tokens on both: maximum, weights, normalised weights."""
    m, sizes, mult, shift, context = 5, (6, 7), 33_000, 16, 3
    flags = {"all": [], "causal": [SM.CAUSAL], "tree": [SM.TREE]}[kind] + [SM.WIDE] * wide
    no_wide = [flag for flag in flags if flag != SM.WIDE]
    scores, seen = [], []
    for at, n, after in ((7, 6, 7), (40, 7, 0)):
        scores.append([[clip(half_up(acc(memory, at, 9, i, j) * mult, shift), 24) for j in range(n)] for i in range(m)])
        seen.append(masks(m, n, kind, after, memory))
    t = [scores[0][i] + scores[1][i] for i in range(m)]
    mask = [seen[0][i] + seen[1][i] for i in range(m)]
    top = [max([EMPTY] + [x for x, s in zip(t[i], mask[i]) if s]) for i in range(m)]
    p = [[power(top[i] - x) if s else 0 for x, s in zip(t[i], mask[i])] for i in range(m)]
    totals = [sum(line) for line in p]
    bits = [total.bit_length() for total in totals]
    ratios = [(1 << 15 + length) // total for total, length in zip(totals, bits)]

    # The first piece has the 7 columns of register 2 (less an offset of 3) behind it.
    first = {"m": m, "n": 6, "src0": 7, "src0_stride": 9, "mult": mult, "shift": shift, "context": context, "src1": 60,
             "aux": 3 << 4 | 2}
    second = first | {"n": 7, "src0": 40, "aux": 0}
    memory.maximum[context] = 1 << 22  # without CONTINUE it counts for nothing
    total_before = memory.total.copy()
    run(memory, VOp.SOFTMAX_MAX, no_wide, [0, 10], **first)
    run(memory, VOp.SOFTMAX_MAX, [*no_wide, SM.CONTINUE], [0, 10], **second)
    assert memory.maximum[context, :m].tolist() == top
    before = memory.reciprocal.copy(), memory.length.copy()
    run(memory, VOp.SOFTMAX_EXP, [*flags, SM.MORE], [0, 10], dst=300, dst_stride=12, **first)
    assert memory.total[context, :m].tolist() == [sum(line[:6]) for line in p]
    assert (memory.total[:context] == total_before[:context]).all()
    assert (memory.reciprocal == before[0]).all()
    assert (memory.length == before[1]).all()
    run(memory, VOp.SOFTMAX_EXP, [*flags, SM.CONTINUE], [0, 10], dst=400, dst_stride=12, **second)
    assert memory.length[context, :m].tolist() == bits
    assert memory.reciprocal[context, :m].tolist() == ratios
    assert memory.total[context, :m].tolist() == [sum(line[:6]) for line in p]  # only MORE writes it
    limit, drop = (65_535, 4) if wide else (255, 12)
    read = (lambda *at: word(memory, *at) & 65_535) if wide else (lambda *at: byte(memory, *at))
    for i in range(m):
        for j in range(13):
            at = (300, 12, i, j) if j < 6 else (400, 12, i, j - 6)
            assert read(*at) == min(limit, half_up(p[i][j], drop)), (i, j)
        assert all(read(row, 12, i, j) == 0 for row, n in zip((300, 400), sizes) for j in range(n, 8))
    for n, values, low in ((6, first, 0), (7, second, 6)):
        run(memory, VOp.SOFTMAX_NORM, flags, [0, 10], dst=500, dst_stride=12, **values)
        for i in range(m):
            down = max(bits[i] - 1, 0) if wide else bits[i] + 7
            for j in range(n):
                assert read(500, 12, i, j) == min(limit, half_up(p[i][low + j] * ratios[i], down))
    assert memory.spm[500:505].any()


def i_exp(distance: int) -> int:
    """I-BERT's exponential on a scale of 425 for ln 2."""
    d = min(max(distance, 0), 30 * 425)
    octaves, r = d // 425, -(d % 425)
    return (r * (r + 1659) + (1 << 20)) >> octaves


def softermax(distance: int) -> int:
    """2 ** (-distance / 1024) in four linear pieces an octave."""
    d = min(max(distance, 0), 40 << 10)
    ends = (65_536, 55_109, 46_341, 38_968, 32_768)
    i, w = d % 1024 // 256, d % 256
    return half_up(ends[i] - half_up((ends[i] - ends[i + 1]) * w, 8) << 4, d // 1024)


@pytest.mark.parametrize("exponential", [power, i_exp, softermax])
def test_online_softmax_in_two_blocks(memory: Memory, exponential: Callable[[int], int]) -> None:
    """The second block lies below, a little above and far above the first one; row 0 sees nothing of either."""
    m, sizes, context, places = 8, (6, 7), 2, (7, 40)
    kind = [power, i_exp, softermax].index(exponential)
    rng = np.random.default_rng(SEED)
    blocks = [rng.integers(-3000, 3000, (m, n)) for n in sizes]
    blocks[0][1], blocks[1][2], blocks[1][3] = blocks[0][1] + 7000, blocks[1][2] + 5000, blocks[1][3] + 90_000
    for at, block in zip(places, blocks):
        for (i, j), value in np.ndenumerate(block):
            memory.acc[at + j // memory.dim * 9 + i, j % memory.dim] = value
    memory.spm[60], memory.spm[61:68] = 0, 255  # the bitmaps: with as many rows, every column is a new token
    memory.maximum[context], memory.rise[context] = 1 << 22, 33  # without CONTINUE they count for nothing
    memory.acc[100:108] = rng.integers(-(1 << 31), 1 << 31, (8, memory.dim))
    sums, octave, total, rises = memory.acc[100:108].copy(), [EMPTY] * m, [0] * m, []
    for step, (at, n, block) in enumerate(zip(places, sizes, blocks)):
        more = [SM.ONLINE, SM.TREE, *([SM.CONTINUE] if step else [])]
        values = {"m": m, "n": n, "src0": at, "src0_stride": 9, "mult": 1, "context": context, "src1": 60}
        new = [max(octave[i], -(-max(block[i].tolist()) // 1024) * 1024) if i else EMPTY for i in range(m)]
        rises.append([min(40, (new[i] - octave[i]) // 1024) for i in range(m)])
        octave = new
        run(memory, VOp.SOFTMAX_MAX, more, **values)
        assert memory.maximum[context, :m].tolist() == octave
        assert memory.rise[context, :m].tolist() == rises[-1]
        p = [[exponential(octave[i] - int(x)) if i else 0 for x in block[i]] for i in range(m)]
        total = [half_up(total[i], rises[-1][i]) + sum(p[i]) for i in range(m)]
        run(memory, VOp.SOFTMAX_EXP, [*more, *([] if step else [SM.MORE])], dst=300, dst_stride=9, period=kind,
            **values)
        assert [[byte(memory, 300, 9, i, j) for j in range(n)] for i in range(m)] == [
            [min(255, half_up(x, 12)) for x in line] for line in p]
        if step:
            bits = [value.bit_length() for value in total]
            ratios = [(1 << 15 + length) // max(1, value) if value else 0 for length, value in zip(bits, total)]
            assert memory.length[context, :m].tolist() == bits
            assert memory.reciprocal[context, :m].tolist() == ratios
            run(memory, VOp.SOFTMAX_NORM, [SM.TREE, SM.WIDE], dst=300, dst_stride=18, period=kind, **values)
            assert [[word(memory, 300, 18, i, j) & 65_535 for j in range(n)] for i in range(m)] == [
                [min(65_535, half_up(x * ratios[i], max(bits[i] - 1, 0))) for x in p[i]] for i in range(m)]
        else:
            assert memory.total[context, :m].tolist() == total
    assert rises[0] == [0, *[40] * 7]
    assert rises[1][:2] == [0, 0]
    assert 1 <= rises[1][2] <= 6
    assert rises[1][3] == 40
    run(memory, VOp.RESCALE, m=m, n=1, src0=100, dst=100, context=context)
    assert memory.acc[100:108].tolist() == [
        [half_up(int(x), rise) for x in line] for line, rise in zip(sums, rises[1])]


def test_the_highest_octave(memory: Memory) -> None:
    """Scores above 8191 octaves count as 1.0; a maximum from there on rises no more."""
    memory.acc[7, :3] = [(1 << 23) - 1, 8191 << 10, 8190 << 10]
    values = {"m": 1, "n": 3, "src0": 7, "mult": 1, "context": 1}
    run(memory, VOp.SOFTMAX_MAX, [SM.ONLINE], **values)
    assert memory.maximum[1, 0] == 8191 << 10
    run(memory, VOp.SOFTMAX_EXP, [SM.MORE], dst=300, **values)
    assert memory.total[1, 0] == 5 << 19
    run(memory, VOp.SOFTMAX_MAX, [SM.ONLINE, SM.CONTINUE], **values)
    assert memory.rise[1, 0] == 0


def test_softmax_of_nothing(memory: Memory) -> None:
    """CAUSAL with all rows' columns behind the piece: no maximum, no weight, (R, L) = (0, 0), normalised 0."""
    values = {"m": 2, "n": 3, "src0": 7, "src0_stride": 2, "mult": 1, "aux": 1}
    run(memory, VOp.SOFTMAX_MAX, [SM.CAUSAL], [4], **values)  # after 4: row 1 sees columns up to 3 + 4 - 2 + 1 = 6
    assert (memory.maximum[0, :2] > EMPTY).all()
    values["m"] = 9
    memory.acc[:] = 5
    run(memory, VOp.SOFTMAX_MAX, [SM.CAUSAL], [0], **values)
    assert (memory.maximum[0, :6] == EMPTY).all()
    assert (memory.maximum[0, 6:9] == 5).all()
    run(memory, VOp.SOFTMAX_EXP, [SM.CAUSAL], [0], dst=300, dst_stride=9, **values)
    assert (memory.reciprocal[0, :6] == 0).all()
    assert (memory.length[0, :6] == 0).all()
    run(memory, VOp.SOFTMAX_NORM, [SM.CAUSAL], [0], dst=300, dst_stride=9, **values)
    assert (memory.spm[300:306] == 0).all()
    assert memory.spm[306:309, :3].tolist() == [[255, 0, 0], [128, 128, 0], [85, 85, 85]]


def test_softmax_sum_wraps(memory: Memory) -> None:
    memory.total[0, 0], memory.maximum[0, 0], memory.acc[7, 0] = (1 << 37) - 5, 0, 0
    run(memory, VOp.SOFTMAX_EXP, [SM.CONTINUE, SM.MORE], m=1, n=1, src0=7, mult=1, dst=300)
    assert memory.total[0, 0] == (1 << 20) - 5


def test_absmax_and_its_scales(memory: Memory) -> None:
    """A = 0, 1, 2**31, 98765, 20000: (R, L) divides by A in context 1, multiplies by A / 2**19 in context 2."""
    rows = [[0] * 6, [0, 1, 0, -1, 0, 0], [5, -(1 << 31), 7, (1 << 31) - 1, 0, 0], [0, 0, 0, 0, 0, -98_765],
            [3, -700, 20_000, 1, -19_999, 2]]
    for i, line in enumerate(rows):
        for j, value in enumerate(line):
            memory.acc[3 + j // memory.dim * 6 + i, j % memory.dim] = value
    if memory.dim == 8:
        memory.acc[3:8, 6:] = 1 << 30  # beyond n
    run(memory, VOp.ABSMAX, m=5, n=6, src0=3, src0_stride=6, context=1)
    for i, largest in enumerate((0, 1, 1 << 31, 98_765, 20_000)):
        length = largest.bit_length()
        reciprocal = (1 << 15 + length) // largest if largest else 0
        own = largest << 16 - length if length <= 16 else largest >> length - 16
        assert (memory.reciprocal[1, i], memory.length[1, i]) == (reciprocal, length)
        assert (memory.reciprocal[2, i], memory.length[2, i]) == (own, 32 - length if largest else 0)


def test_rows_scaled_by_their_own_maximum(memory: Memory) -> None:
    """ABSMAX, then REQUANT ROW: the largest element becomes 127 of 2**12; the other context multiplies by A / 2**19."""
    memory.acc[3, :4] = [1010, -2000, 504, 6]
    run(memory, VOp.ABSMAX, m=1, n=4, src0=3, context=0)
    values = {"m": 1, "n": 4, "src0": 3, "dst": 300, "dst_stride": 4}
    # acc * R * 2**(12 - 15 - L) * mult * 2**-shift = acc / A * 2**12 * mult / 2**shift
    run(memory, VOp.REQUANT, [RQ.ROW], mult=127 << 8, shift=20, context=0, **values)
    assert memory.spm[300, :4].astype(np.int8).tolist() == [64, -127, 32, 0]
    # acc * A * 2**-19 * mult * 2**-shift
    run(memory, VOp.REQUANT, [RQ.ROW, RQ.WIDE], mult=1 << 15, shift=3, context=1, **values)
    assert [word(memory, 300, 4, 0, j) for j in range(4)] == [round(a * 2000 / 128) for a in (1010, -2000, 504, 6)]
