"""The select unit, predicates and INDEXED moves on data, against plain loops over the elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from gemmule.config import Config
from gemmule.isa import (
    ArgmaxFlag,
    Command,
    CommitFlag,
    CompareFlag,
    ImportanceFlag,
    KeysFlag,
    ListFlag,
    MoveFlag,
    SOp,
    TopKFlag,
    Unit,
    decode_table,
    encode_program,
)
from gemmule.resolve import OUT, resolve
from gemmule.sim.functional.execute import Trace, execute
from gemmule.sim.functional.memory import Memory

AM, KY, IM, CM, CP = ArgmaxFlag, KeysFlag, ImportanceFlag, CommitFlag, CompareFlag

SEED = 23
CONFIGS = [
    Config(name="four", dim=4, bus_bytes=4, spm_kib=4, spm_banks=4, acc_kib=4, acc_banks=4, stat_rows=16,
           select_keys=64, list_entries=128),
    Config(name="two", dim=2, bus_bytes=2, spm_kib=2, spm_banks=2, acc_kib=1, acc_banks=2, stat_rows=16,
           select_keys=128, list_entries=64),
    Config(name="narrow", dim=4, bus_bytes=4, spm_kib=4, spm_banks=4, acc_kib=4, acc_banks=4, stat_rows=16,
           select_keys=64, list_entries=128, index_bits=16),
]
STATE = ("spm", "keys", "ids", "committed", "shadow", "mask", "list", "best", "best_ids", "dram")
TOP = (1 << 32) - 1


@pytest.fixture(params=CONFIGS, ids=lambda config: config.name)
def config(request: pytest.FixtureRequest) -> Config:
    return request.param


@pytest.fixture
def memory(config: Config) -> Memory:
    memory = Memory(config, dram_bytes=4096)
    rng = np.random.default_rng(SEED)
    memory.dram[:] = rng.integers(0, 256, memory.dram.shape)
    memory.spm[:] = rng.integers(0, 256, memory.spm.shape)
    memory.keys[:] = rng.integers(0, 6, memory.keys.shape) << 20  # many ties
    memory.ids[:] = rng.integers(0, 1 << 16, memory.ids.shape)
    memory.committed[:] = rng.integers(0, 1 << 32, memory.committed.shape)
    memory.shadow[:] = rng.integers(0, 1 << 32, memory.shadow.shape)
    memory.mask[:] = rng.random(memory.mask.shape) < 0.4
    memory.list[:] = rng.integers(0, 1 << 16, memory.list.shape)
    memory.best[:] = rng.integers(-40_000 // 2, 32_768, memory.best.shape)
    memory.best_ids[:] = rng.integers(0, 1 << 16, memory.best_ids.shape)
    return memory


def run(memory: Memory, config: Config, image: bytes) -> Trace:
    table = decode_table(image)
    none = np.zeros(32, dtype=np.int64)
    resolved = resolve(table, none, np.full(32, 4096), none[:16], config)
    assert not resolved[:, OUT["fault"]].any()
    return execute(memory, table, np.arange(len(table)), resolved)


def select(memory: Memory, config: Config, op: SOp, flags: Iterable[int] = (), **values: int) -> dict[
        str, np.ndarray]:
    """Run one command; what every memory held before it."""
    before = {name: getattr(memory, name).copy() for name in STATE}
    run(memory, config, encode_program([Command.make(Unit.SELECT, op=op, flags=flags, **values)]))
    return before


def same(memory: Memory, expected: dict[str, np.ndarray]) -> None:
    for name in STATE:
        np.testing.assert_array_equal(getattr(memory, name), expected[name], err_msg=name)


def operand(spm: np.ndarray, row: int, stride: int, m: int, n: int, planes: int, *, signed: bool) -> list[list[int]]:
    dim, found = spm.shape[1], []
    for i in range(m):
        line = []
        for j in range(n):
            at = row + j // dim * stride + i
            value = int(spm[at, j % dim])
            if planes == 2:
                value += int(spm[at + stride // 2, j % dim]) << 8
                value -= value >> 15 << 16 if signed else 0
            line.append(value)
        found.append(line)
    return found


@pytest.mark.parametrize("again", [False, True])
def test_argmax(memory: Memory, config: Config, again: bool) -> None:
    """Ids wrap at the device's bits; of equal values the first counts, and the running one before all."""
    m, n, first = 5, 7, (1 << config.index_bits) - 3
    memory.spm[10] = memory.spm[10 + 8]  # columns of two groups alike
    memory.best[0] = 40_000 - 32_768
    x = operand(memory.spm, 10, 16, m, n, 2, signed=True)
    memory.best[1] = max(x[1])
    expected = select(memory, config, SOp.ARGMAX, [AM.CONTINUE] * again, m=m, n=n, src0=10, src0_stride=16, first=first,
                      dst=20)
    for i in range(m):
        value = max(x[i])
        name = (first + x[i].index(value)) % (1 << config.index_bits)
        if again and expected["best"][i] >= value:
            value, name = int(expected["best"][i]), int(expected["best_ids"][i])
        expected["best"][i], expected["best_ids"][i], expected["list"][20 + i] = value, name, name
    same(memory, expected)


def test_argmax_in_pieces(memory: Memory, config: Config) -> None:
    """A row of 12 columns in pieces of 5 and 7 gives what it gives at once."""
    dim = config.dim
    row = [3, -9, 700, -32_768, 12, 700, 701, 5, 701, 32, 0, 1]
    for at, piece in ((10, row[:5]), (50, row[5:]), (100, row)):
        for j, value in enumerate(piece):
            memory.spm[at + j // dim * 2, j % dim] = value & 255
            memory.spm[at + j // dim * 2 + 1, j % dim] = value >> 8 & 255
    for flags, at, n, first in (((), 10, 5, 0), ((AM.CONTINUE,), 50, 7, 5)):
        select(memory, config, SOp.ARGMAX, flags, m=1, n=n, src0=at, src0_stride=2, first=first, dst=3)
    assert memory.list[3] == 6
    assert memory.best[0] == 701
    select(memory, config, SOp.ARGMAX, m=1, n=12, src0=100, src0_stride=2, dst=4)
    assert memory.list[4] == 6


def test_keys_of_words(memory: Memory, config: Config) -> None:
    x = operand(memory.spm, 6, 4, 1, 9, 2, signed=True)[0]
    expected = select(memory, config, SOp.KEYS, m=0, n=9, src0=6, src0_stride=4, dst=11, first=65_000, aux=0x0101)
    for j in range(9):
        expected["keys"][11 + j], expected["ids"][11 + j] = (x[j] + 32_768) * 256, 65_000 + j
    same(memory, expected)


@pytest.mark.parametrize(("shift", "down"), [(0, 0), (9, 9), (31, 31), (40, 31)])
def test_keys_of_importance(memory: Memory, config: Config, shift: int, down: int) -> None:
    """The first 2 and the last 3 of the 9 are sure to be kept."""
    expected = select(memory, config, SOp.KEYS, [KY.FROM_IMPORTANCE], n=9, first=30, dst=5, shift=shift, aux=3 << 8 | 2)
    for j in range(9):
        key = min(int(expected["committed"][30 + j]) >> down, (1 << 24) - 1)
        expected["keys"][5 + j] = (1 << 24) - 1 if j < 2 or j >= 6 else key
        expected["ids"][5 + j] = 30 + j
    same(memory, expected)


@pytest.mark.parametrize("k", [0, 1, 5, 17, 40, 41, 60])
@pytest.mark.parametrize("alone", [False, True])
def test_top_k(memory: Memory, config: Config, alone: bool, k: int) -> None:
    """k of 41 keys with many ties, by repeated search of the largest; the first of equal ones wins."""
    n = 41
    keys = memory.keys[:n].tolist()
    kept: list[int] = []
    while len(kept) < min(k, n):
        kept.append(max((j for j in range(n) if j not in kept), key=lambda j: (keys[j], -j)))
    expected = select(memory, config, SOp.TOP_K, [TopKFlag.KEEP] * alone, n=n, k=k, dst=13)
    old = {name: expected[name].copy() for name in ("keys", "ids")}
    for place, j in enumerate(sorted(kept)):
        if not alone:
            expected["keys"][place], expected["ids"][place] = old["keys"][j], old["ids"][j]
        expected["list"][13 + place] = old["ids"][j]
    for j in range(n if k else 0):
        expected["mask"][j] = j in kept
    same(memory, expected)


@pytest.mark.parametrize(("n", "k"), [(41, 1), (7, 60), (1, 1), (9, 0)])
def test_top_k_of_what_is_not_zero(memory: Memory, config: Config, n: int, k: int) -> None:
    """Every key is listed, those of 0 last; k only says whether there is anything to do."""
    expected = select(memory, config, SOp.TOP_K, [TopKFlag.NONZERO], n=n, k=k, dst=13)
    nonzero = [j for j in range(n) if expected["keys"][j]]
    others = [j for j in range(n) if j not in nonzero]
    assert n < 41 or (len(nonzero) > 20 and len(others) > 2)
    for place, j in enumerate([*nonzero, *others] if k else []):
        expected["list"][13 + place] = expected["ids"][j]
        expected["mask"][j] = j in nonzero
    same(memory, expected)


@pytest.mark.parametrize("n", [1, 7, 23])
def test_pack(memory: Memory, config: Config, n: int) -> None:
    """The marked columns of each row, then zeros to the end of the last group."""
    x = operand(memory.spm, 6, 5, 3, n, 1, signed=False)
    expected = select(memory, config, SOp.PACK, m=3, n=n, src0=6, src0_stride=5, dst=120)
    for i in range(3):
        line = [x[i][j] for j in range(n) if expected["mask"][j]]
        for at in range(-(-n // config.dim) * config.dim):
            expected["spm"][120 + at // config.dim * 5 + i, at % config.dim] = line[at] if at < len(line) else 0
    same(memory, expected)


def test_keys_that_keep_their_ids(memory: Memory, config: Config) -> None:
    expected = select(memory, config, SOp.KEYS, [KY.FROM_IMPORTANCE, KY.KEEP_IDS], n=9, first=30, dst=5, shift=8)
    for j in range(9):
        expected["keys"][5 + j] = min(int(expected["committed"][30 + j]) >> 8, (1 << 24) - 1)
    same(memory, expected)


def test_importance_from_keys(memory: Memory, config: Config) -> None:
    expected = select(memory, config, SOp.COMMIT, [CM.FROM_KEYS], n=11, first=8)
    expected["committed"][8:19], expected["shadow"][8:19] = expected["keys"][8:19], 0
    same(memory, expected)


@pytest.mark.parametrize("wide", [False, True])
def test_importance(memory: Memory, config: Config, wide: bool) -> None:
    """Unsigned column sums; it stays at 2**32 - 1."""
    memory.shadow[21] = TOP - 3
    x = operand(memory.spm, 8, 12, 6, 7, 1 + wide, signed=False)
    expected = select(memory, config, SOp.IMPORTANCE, [IM.WIDE] * wide, m=6, n=7, src0=8, src0_stride=12, first=20)
    for j in range(7):
        expected["shadow"][20 + j] = min(int(expected["shadow"][20 + j]) + sum(line[j] for line in x), TOP)
    same(memory, expected)
    assert memory.shadow[21] == TOP


@pytest.mark.parametrize("flags", [(), (CM.DISCARD,), (CM.CLEAR,), (CM.DISCARD, CM.CLEAR)], ids=str)
def test_commit(memory: Memory, config: Config, flags: Sequence[int]) -> None:
    expected = select(memory, config, SOp.COMMIT, flags, n=17, first=40)
    saturated = 0
    for j in range(40, 57):
        total = int(expected["committed"][j] + expected["shadow"][j])
        saturated += total > TOP
        if CM.CLEAR in flags:
            expected["committed"][j] = 0
        elif CM.DISCARD not in flags:
            expected["committed"][j] = min(total, TOP)
        expected["shadow"][j] = 0
    same(memory, expected)
    assert 2 < saturated < 15


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize(("wide", "above"), [(False, -1), (False, 0), (False, 1), (True, 0), (True, 1)])
def test_compare(memory: Memory, config: Config, wide: bool, above: int, invert: bool) -> None:
    """The threshold at the maximum counts as reached; with WIDE both are signed."""
    memory.spm[:] //= 2
    memory.spm[9 + 3, 1] |= 128 if wide else 0  # a negative word
    if wide:
        memory.spm[9:40] |= 128  # all of them
    largest = max(max(line) for line in operand(memory.spm, 9, 6, 3, 5, 1 + wide, signed=wide))
    assert (largest < 0) == wide
    flags = [flag for flag, on in ((CP.WIDE, wide), (CP.INVERT, invert)) if on]
    expected = select(memory, config, SOp.COMPARE, flags, m=3, n=5, src0=9, src0_stride=6, aux=largest + above & 0xFFFF,
                      number=2)
    same(memory, expected)
    assert memory.predicates == [True, False, (above <= 0) != invert, False]


def test_lists_in_and_out(memory: Memory, config: Config) -> None:
    """DIM / 2 entries a row, lowest byte first; the last row is filled with 0."""
    half, n = config.dim // 2, 11
    expected = select(memory, config, SOp.LIST_LOAD, n=n, src0=30, dst=40)
    for j in range(n):
        low, high = (int(expected["spm"][30 + j // half, j % half * 2 + k]) for k in (0, 1))
        expected["list"][40 + j] = low + 256 * high
    same(memory, expected)
    expected = select(memory, config, SOp.LIST_STORE, n=n, first=40, dst=90)
    for j in range(-(-n // half) * half):
        value = int(expected["list"][40 + j]) if j < n else 0
        expected["spm"][90 + j // half, j % half * 2:j % half * 2 + 2] = value & 255, value >> 8
    same(memory, expected)


def test_the_high_bits_of_lists(memory: Memory, config: Config) -> None:
    """HIGH brings bits 17:16 to entries that keep the others, and stores them alone."""
    if config.index_bits == 16:
        with pytest.raises(AssertionError):
            select(memory, config, SOp.LIST_LOAD, [ListFlag.HIGH], n=1)
        return
    half, n = config.dim // 2, 11
    expected = select(memory, config, SOp.LIST_LOAD, [ListFlag.HIGH], n=n, src0=30, dst=40)
    for j in range(n):
        above = int(expected["spm"][30 + j // half, j % half * 2]) & 3
        expected["list"][40 + j] = int(expected["list"][40 + j]) % 65_536 + 65_536 * above
    same(memory, expected)
    expected = select(memory, config, SOp.LIST_STORE, [ListFlag.HIGH], n=n, first=40, dst=90)
    for j in range(-(-n // half) * half):
        above = int(expected["list"][40 + j]) >> 16 if j < n else 0
        expected["spm"][90 + j // half, j % half * 2:j % half * 2 + 2] = above, 0
    same(memory, expected)
    expected = select(memory, config, SOp.LIST_STORE, n=n, first=40, dst=90)
    for j in range(-(-n // half) * half):
        value = int(expected["list"][40 + j]) % 65_536 if j < n else 0
        expected["spm"][90 + j // half, j % half * 2:j % half * 2 + 2] = value & 255, value >> 8
    same(memory, expected)


def indexed(unit: Unit, config: Config, **values: int) -> Command:
    move = {"bytes": config.dim, "stride": 32, "rows": 4, "row_stride": 1, "block_stride": 1, "list": 5,
            "last_index": 9} | values
    return Command.make(unit, flags=[MoveFlag.INDEXED], **move)


def test_gather_and_scatter(memory: Memory, config: Config) -> None:
    """Rows 3, 9 (limited), 0 and again 3; the trace tells them, and the later of two stores to a row stays."""
    dim = config.dim
    memory.list[5:9] = [3, 700, 0, 3]
    before = memory.dram.copy()
    spm = memory.spm.copy()
    trace = run(memory, config, encode_program([
        indexed(Unit.LOAD, config, offset=64, row=20), Command.make(Unit.LOAD, bytes=1, rows=1),
        indexed(Unit.STORE, config, offset=1000, row=40, rows=3, list=6)]))
    assert {at: rows.tolist() for at, rows in trace.indices.items()} == {0: [3, 9, 0, 3], 2: [9, 0, 3]}
    assert not trace.skipped.any()
    for r, number in enumerate((3, 9, 0, 3)):
        assert (memory.spm[20 + r] == before[64 + 32 * number:][:dim]).all()
    for r, number in enumerate((9, 0, 3)):
        assert (memory.dram[1000 + 32 * number:][:dim] == spm[40 + r]).all()
    assert (memory.dram != before).sum() <= 3 * dim
    run(memory, config, encode_program([indexed(Unit.STORE, config, offset=2000, row=50)]))
    assert (memory.dram[2000 + 32 * 3:][:dim] == memory.spm[53]).all()


def test_predicates(memory: Memory, config: Config) -> None:
    """0 is always true; the others are false at first, hold what COMPARE found, and are false in the next launch."""
    memory.spm[0], memory.dram[:8] = 1, 9
    memory.list[0] = 0

    def program(compare: bool) -> bytes:
        commands = [Command.make(Unit.SELECT, op=SOp.COMPARE, m=1, n=1, aux=1, number=3)] if compare else []
        commands += [Command.make(Unit.LOAD, bytes=1, rows=1, row=10 + p, predicate=p) for p in range(4)]
        commands.append(replace(indexed(Unit.LOAD, config, row=20, list=0, rows=1), predicate=1))
        commands.append(Command.make(Unit.LOAD, bytes=1, rows=0, row=10, predicate=2))
        return encode_program(commands)

    memory.spm[10:14] = 0
    trace = run(memory, config, program(True))
    assert memory.spm[10:14, 0].tolist() == [9, 0, 0, 9]
    assert trace.skipped.tolist() == [False, False, True, True, False, True, True]
    assert trace.indices == {}
    memory.spm[10:14] = 0
    trace = run(memory, config, program(False))
    assert memory.spm[10:14, 0].tolist() == [9, 0, 0, 0]
    assert trace.skipped.tolist() == [False, True, True, True, True, True]


def test_a_skipped_compare_keeps_its_predicate(memory: Memory, config: Config) -> None:
    memory.spm[0] = 1
    yes, no = (Command.make(Unit.SELECT, op=SOp.COMPARE, m=1, n=1, aux=aux, number=1) for aux in (1, 2))
    trace = run(memory, config, encode_program([
        yes, replace(no, predicate=2), replace(yes, predicate=1), replace(no, predicate=1), replace(yes, predicate=1)]))
    assert trace.skipped.tolist() == [False, True, False, False, True]
    assert not memory.predicates[1]
