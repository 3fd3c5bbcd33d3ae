"""cocotb bench of the select unit (``hw/select/select.py``): maxima, top-K with ties, importance, lists, predicates."""

import random
from enum import IntEnum
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from support import CONFIG, Issuer, Memory, now, stalls, start, until

from gemmule.hw.interfaces import select_layout
from gemmule.isa import ArgmaxFlag, CommitFlag, CompareFlag, ImportanceFlag, KeysFlag, SOp, TopKFlag

LAYOUT = select_layout(CONFIG)
DIM = CONFIG.dim
KEY_MAX, COUNT_MAX = (1 << 24) - 1, (1 << 32) - 1


def groups(n: int) -> int:
    return -(-n // DIM)


def bit(*flags: IntEnum) -> int:
    return sum(1 << flag for flag in flags)


class Bench:
    """The unit behind a scratchpad of random rows; commands run one by one."""

    def __init__(self, dut: Any, seed: int) -> None:
        self.dut = dut
        self.rng = random.Random(seed)
        rows = np.random.default_rng(seed).integers(0, 256, (1024, DIM), dtype=np.uint8)
        self.scratchpad = Memory(dut, rows, reads={"spm": 1}, writes=["w"])

    async def run(self, op: SOp, cycles: int, **fields: int) -> None:
        """One command, which must finish ``cycles`` after its issue and give back both claims then."""
        command = {"zero": 0, "op": int(op), "m": 1, "n": 1, "k": 1, **fields}
        issuer = Issuer(self.dut, LAYOUT, [command], limit=1)
        await until(self.dut, lambda: issuer.done)
        issuer.stop()
        t = issuer.issues[0]
        assert issuer.finishes == [t + cycles], (op, fields)
        assert issuer.releases == [(t + cycles, 3)]

    def place(self, values: np.ndarray, row: int, planes: int) -> int:
        """Write ``values[rows, n]`` as byte planes from ``row`` on; the stride between column groups."""
        m, n = values.shape
        stride = planes * (m + 1)
        for plane in range(planes):
            for r in range(m):
                for j in range(n):
                    at = row + j // DIM * stride + plane * (stride // 2) + r
                    self.scratchpad.rows[at, j % DIM] = int(values[r, j]) >> 8 * plane & 255
        return stride

    async def entries(self, first: int, count: int, port: str = "load_list") -> list[int]:
        """List entries through a read port of the load or store unit."""
        found = []
        for entry in range(first, first + count):
            getattr(self.dut, f"{port}__en").value = 1
            getattr(self.dut, f"{port}__entry").value = entry
            await RisingEdge(self.dut.clk)
            getattr(self.dut, f"{port}__en").value = 0
            await RisingEdge(self.dut.clk)
            await RisingEdge(self.dut.clk)
            found.append(int(getattr(self.dut, f"{port}__data").value))
        return found

    def words(self, m: int, n: int) -> np.ndarray:
        """int16 values ``[m, n]`` of which many are equal."""
        low, high = self.rng.choice(((-3, 3), (-32768, 32767), (32766, 32767), (-32768, -32767)))
        return np.array([[self.rng.randint(low, high) for _ in range(n)] for _ in range(m)])


def largest(keys: list[int], k: int) -> list[int]:
    """Places of the k largest, ascending; of equal ones the first."""
    return sorted(sorted(range(len(keys)), key=lambda i: (-keys[i], i))[:k])


@cocotb.test()
@cocotb.parametrize(seed=[1, 2])
async def argmax(dut: Any, seed: int) -> None:
    """M * g(N) * 2 steps from t + 1 on, the result 9 cycles after the last one; CONTINUE keeps an equal maximum."""
    await start(dut)
    bench = Bench(dut, seed)
    for _ in range(8):
        m, n, dst = bench.rng.randint(1, CONFIG.stat_rows), bench.rng.randint(1, 4 * DIM + 1), bench.rng.randrange(16)
        best: list[tuple[int, int]] = []
        for again in (False, True, True):
            values, first = bench.words(m, n), bench.rng.randrange(65536)
            stride = bench.place(values, 40, 2)
            await bench.run(SOp.ARGMAX, 9 + m * groups(n) * 2, m=m, n=n, src0=40, src0_stride=stride, dst=dst,
                            first=first, flags=bit(ArgmaxFlag.CONTINUE) if again else 0)
            for r, row in enumerate(values.tolist()):
                found = max(row), first + row.index(max(row)) & 65535
                if not again:
                    best.append(found)
                elif found[0] > best[r][0]:
                    best[r] = found
            assert await bench.entries(dst, m) == [entry for _, entry in best]


@cocotb.test()
@cocotb.parametrize(seed=[1, 2])
async def top_k(dut: Any, seed: int) -> None:
    """Keys in two runs, 2 g(N) + 5 cycles each; then six passes and a filter, 7 g(N) + 28 cycles. The survivors are
    the keys of a second, smaller selection."""
    await start(dut)
    bench = Bench(dut, seed)
    for _ in range(12):
        n, first, dst = bench.rng.randint(2, 5 * DIM), bench.rng.randrange(60000), bench.rng.randrange(9)
        cut, values = bench.rng.randint(1, n - 1), bench.words(1, n)
        for begin, end in ((0, cut), (cut, n)):
            stride = bench.place(values[:, begin:end], 40, 2)
            await bench.run(SOp.KEYS, 5 + 2 * groups(end - begin), n=end - begin, src0=40, src0_stride=stride,
                            dst=begin, first=first + begin)
        keys, ids = values[0].tolist(), list(range(first, first + n))
        for k in (bench.rng.randint(1, n + 1), bench.rng.randint(1, n)):
            await bench.run(SOp.TOP_K, 28 + 7 * groups(len(keys)), n=len(keys), k=k, dst=dst)
            kept = largest(keys, k)
            keys, ids = [keys[i] for i in kept], [ids[i] for i in kept]
            assert await bench.entries(dst, len(ids), "store_list") == ids


@cocotb.test()
@cocotb.parametrize(seed=[1, 2])
async def importance(dut: Any, seed: int) -> None:
    """Sums of weights, committed, become keys: shifted, saturated, the ends protected. g(N) * M * planes + 5,
    g(N) + 5 and g(N) + 5 cycles."""
    await start(dut)
    bench = Bench(dut, seed)
    n, first = 3 * DIM + 1, 5
    await bench.run(SOp.IMPORTANCE, 5 + groups(n), n=n, src0=40, src0_stride=2, first=first)
    await bench.run(SOp.COMMIT, 5 + groups(n), n=n, first=first, flags=bit(CommitFlag.CLEAR))
    sums = [0] * n
    for turn in range(6):
        m, planes = bench.rng.randint(1, 6), bench.rng.randint(1, 2)
        most = bench.rng.choice((1, 255)) if planes == 1 else 65535
        weights = np.array([[bench.rng.randint(0, most) for _ in range(n)] for _ in range(m)])
        stride = bench.place(weights, 40, planes)
        await bench.run(SOp.IMPORTANCE, 5 + groups(n) * m * planes, m=m, n=n, src0=40, src0_stride=stride, first=first,
                        flags=bit(ImportanceFlag.WIDE) if planes == 2 else 0)
        dropped = turn == 3
        await bench.run(SOp.COMMIT, 5 + groups(n), n=n, first=first, flags=bit(CommitFlag.DISCARD) if dropped else 0)
        if not dropped:
            sums = [min(s + int(w), COUNT_MAX) for s, w in zip(sums, weights.sum(axis=0))]
        head, tail, shift, k = bench.rng.randrange(3), bench.rng.randrange(3), turn, bench.rng.randint(1, n)
        await bench.run(SOp.KEYS, 5 + groups(n), n=n, first=first, dst=0, shift=shift, aux=head | tail << 8,
                        flags=bit(KeysFlag.FROM_IMPORTANCE))
        keys = [KEY_MAX if i < head or i >= n - tail else min(s >> shift, KEY_MAX) for i, s in enumerate(sums)]
        await bench.run(SOp.TOP_K, 28 + 7 * groups(n), n=n, k=k, dst=2)
        assert await bench.entries(2, k) == [first + i for i in largest(keys, k)]


@cocotb.test()
@cocotb.parametrize(seed=[1, 2])
async def packed(dut: Any, seed: int) -> None:
    """Columns of which a row is not 0 are listed, in two filters of g(N) + 4 cycles, then the others; rows keep them
    side by side, in a step for each group and one behind them. The rows beside the result keep what they held."""
    await start(dut)
    bench = Bench(dut, seed)
    await bench.run(SOp.COMMIT, 5 + groups(4 * DIM), n=4 * DIM, flags=bit(CommitFlag.CLEAR))
    for share in (0.0, 0.2, 0.5, 1.0):
        m, n = bench.rng.randint(1, 4), bench.rng.randint(1, 4 * DIM)
        values = np.array([[bench.rng.randint(0, 255) * (bench.rng.random() < share) for _ in range(n)]
                           for _ in range(m)])
        stride = bench.place(values, 40, 1)
        await bench.run(SOp.IMPORTANCE, 5 + groups(n) * m, m=m, n=n, src0=40, src0_stride=stride)
        await bench.run(SOp.COMMIT, 5 + groups(n), n=n)
        await bench.run(SOp.KEYS, 5 + groups(n), n=n, flags=bit(KeysFlag.FROM_IMPORTANCE))
        await bench.run(SOp.TOP_K, 8 + 2 * groups(n), n=n, k=1, dst=2, flags=bit(TopKFlag.NONZERO))
        used = np.flatnonzero(values.any(axis=0))
        assert await bench.entries(2, n) == [*used, *np.flatnonzero(~values.any(axis=0))]
        expected = bench.scratchpad.rows.copy()
        for i, row in enumerate(values):
            line = np.zeros(groups(n) * DIM, dtype=np.uint8)
            line[:len(used)] = row[used]
            expected[300 + i:300 + i + groups(n) * stride:stride] = line.reshape(-1, DIM)
        await bench.run(SOp.PACK, 6 + m * (groups(n) + 1), m=m, n=n, src0=40, src0_stride=stride, dst=300)
        np.testing.assert_array_equal(bench.scratchpad.rows, expected)
        await bench.run(SOp.COMMIT, 5 + groups(n), n=n, flags=bit(CommitFlag.CLEAR))


@cocotb.test()
@cocotb.parametrize(seed=[1, 2])
async def lists(dut: Any, seed: int) -> None:
    """Rows of DIM / 2 entries in and out again, at other places; one step an entry of a whole row. Beyond n the
    written rows hold 0, other rows what they held."""
    await start(dut)
    bench = Bench(dut, seed)
    half = DIM // 2
    for _ in range(8):
        n, dst = bench.rng.randint(1, 6 * half), bench.rng.randrange(20)
        rows = -(-n // half)
        entries = bench.scratchpad.rows[100:100 + rows].reshape(-1).view("<u2")[:n].tolist()
        await bench.run(SOp.LIST_LOAD, 5 + half * rows, n=n, src0=100, dst=dst)
        assert await bench.entries(dst, n) == entries
        skip = bench.rng.randrange(n)
        rows = -(-(n - skip) // half)
        expected = bench.scratchpad.rows.copy()
        expected[300:300 + rows] = np.array(
            entries[skip:] + [0] * (rows * half - n + skip), dtype="<u2").view(np.uint8).reshape(rows, DIM)
        await bench.run(SOp.LIST_STORE, 5 + half * rows, n=n - skip, first=dst + skip, dst=300)
        np.testing.assert_array_equal(bench.scratchpad.rows, expected)


@cocotb.test()
@cocotb.parametrize(seed=[1, 2])
async def predicates(dut: Any, seed: int) -> None:
    """A comparison of the maximum: M * g(N) * planes steps, the bit 8 cycles after the last. ``clear`` clears all."""
    await start(dut)
    bench, state = Bench(dut, seed), 1
    for _ in range(16):
        m, n, number = bench.rng.randint(1, 5), bench.rng.randint(1, 3 * DIM), bench.rng.randint(1, 3)
        planes, invert = bench.rng.randint(1, 2), bench.rng.randrange(2)
        values = bench.words(m, n) & 255 if planes == 1 else bench.words(m, n)
        stride = bench.place(values, 40, planes)
        threshold = int(values.max()) + bench.rng.choice((0, 1))
        if planes == 2:
            threshold = min(threshold, 32767)
        flags = [CompareFlag.WIDE] * (planes - 1) + [CompareFlag.INVERT] * invert
        await bench.run(SOp.COMPARE, 9 + m * groups(n) * planes, m=m, n=n, src0=40, src0_stride=stride, number=number,
                        aux=threshold & 65535, flags=bit(*flags))
        state = state & ~(1 << number) | ((int(values.max()) >= threshold) ^ invert) << number
        await RisingEdge(dut.clk)
        assert int(dut.predicates.value) == state
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    dut.clear.value = 0
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    assert int(dut.predicates.value) == 1


@cocotb.test()
async def latency(dut: Any) -> None:
    """Issue to finish with 2 rows of 2 column groups, DIM 4: steps + 9 for a maximum, + 5 for what is written.

    A top-K takes 6 * 6 steps for its passes and 6 for its filter. The next command issues in the cycle after a finish.
    """
    await start(dut)
    rng = np.random.default_rng(5)
    Memory(dut, rng.integers(0, 256, (1024, DIM), dtype=np.uint8), reads={"spm": 1}, writes=["w"])
    wide, from_importance = bit(ImportanceFlag.WIDE), bit(KeysFlag.FROM_IMPORTANCE)
    cases = [
        (SOp.ARGMAX, 0, 17), (SOp.ARGMAX, bit(ArgmaxFlag.CONTINUE), 17), (SOp.KEYS, 0, 9),
        (SOp.KEYS, from_importance, 7), (SOp.TOP_K, 0, 42), (SOp.IMPORTANCE, 0, 9), (SOp.IMPORTANCE, wide, 13),
        (SOp.COMMIT, 0, 7), (SOp.COMMIT, bit(CommitFlag.CLEAR), 7), (SOp.COMPARE, 0, 13), (SOp.COMPARE, wide, 17),
        (SOp.LIST_LOAD, 0, 13), (SOp.LIST_STORE, 0, 13), (SOp.TOP_K, 0, 42), (SOp.ARGMAX, 0, 17),
    ]
    commands = [{"zero": 0, "op": int(op), "flags": flags, "m": 2, "n": 2 * DIM - 1, "k": 3, "src0": 40,
                 "src0_stride": 6, "dst": 8, "number": 1} for op, flags, _ in cases]
    issuer = Issuer(dut, LAYOUT, commands, limit=1)
    await until(dut, lambda: issuer.done)
    assert [b - a for a, b in zip(issuer.issues, issuer.finishes)] == [cycles for *_, cycles in cases]
    assert [b - a for a, b in zip(issuer.finishes, issuer.issues[1:])] == [1] * (len(cases) - 1)


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """5 rows of 3 column groups: a read in every cycle from t + 2 on. List rows, of 2 entries with DIM 4, are read
    every other cycle, and written 5 cycles after their last step."""
    await start(dut)
    bench = Bench(dut, 9)
    reads, writes = bench.scratchpad.read_cycles["spm"], bench.scratchpad.write_cycles["w"]
    fields = {"m": 5, "n": 3 * DIM - 1, "src0": 40, "src0_stride": 12, "dst": 0, "number": 2}
    wide = bit(ImportanceFlag.WIDE)
    for op, flags, count, after in ((SOp.ARGMAX, 0, 30, 9), (SOp.KEYS, 0, 6, 5), (SOp.IMPORTANCE, 0, 15, 5),
                                    (SOp.IMPORTANCE, wide, 30, 5), (SOp.COMPARE, 0, 15, 9),
                                    (SOp.COMPARE, wide, 30, 9)):
        reads.clear()
        await bench.run(op, count + after, flags=flags, **fields)
        assert reads == list(range(reads[0], reads[0] + count)), op
    for op, steps in ((SOp.LIST_LOAD, 12), (SOp.LIST_STORE, 12)):
        reads.clear()
        begin = now() + 1
        await bench.run(op, steps + 5, n=11, src0=40, dst=200)
        if op is SOp.LIST_LOAD:
            assert reads == list(range(reads[0], reads[0] + steps, 2))
            assert not writes
        else:
            assert not reads
            assert writes == [begin + 7 + 2 * i for i in range(6)]
    for op, flags, cycles in ((SOp.TOP_K, 0, 49), (SOp.COMMIT, 0, 8),
                              (SOp.KEYS, bit(KeysFlag.FROM_IMPORTANCE), 8)):
        reads.clear()
        await bench.run(op, cycles, flags=flags, **fields)
        assert not reads


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], share=[0.0, 0.4])
async def list_ports(dut: Any, seed: int, share: float) -> None:
    """Both read ports of the lists answer in the next cycle, in every cycle, whatever the unit is doing."""
    await start(dut)
    bench = Bench(dut, seed)
    count, half = 24, DIM // 2
    await bench.run(SOp.LIST_LOAD, 5 + count, n=count, src0=100, dst=8)
    entries = bench.scratchpad.rows[100:100 + count // half].reshape(-1).view("<u2").tolist()
    busy = {"zero": 0, "m": 4, "n": 3 * DIM, "k": 7, "src0": 40, "src0_stride": 8, "dst": 64}
    issuer = Issuer(dut, LAYOUT, [busy | {"op": int(op)} for op in (SOp.ARGMAX, SOp.KEYS, SOp.TOP_K, SOp.LIST_LOAD)],
                    limit=1)
    ports = ("load_list", "store_list")
    waits = {port: stalls(seed + i, share) for i, port in enumerate(ports)}
    asked: dict[str, list[int | None]] = {port: [None, None] for port in ports}
    answers = 0
    while not issuer.done:
        await RisingEdge(dut.clk)
        for port in ports:
            expected = asked[port].pop(0)
            if expected is not None:
                assert int(getattr(dut, f"{port}__data").value) == expected
                answers += 1
            place = None if waits[port]() else bench.rng.randrange(count)
            getattr(dut, f"{port}__en").value = place is not None
            getattr(dut, f"{port}__entry").value = bench.rng.randrange(200) if place is None else 8 + place
            asked[port].append(None if place is None else entries[place])
    assert answers > 80
