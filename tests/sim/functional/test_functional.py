"""Data effects of moves and of vector commands without statistics, element by element as the contract states them.

The whole memory is compared, so a stray write is seen. Arithmetic comes from ``gemmule.numerics``
(tested on its own); what is stated here is which element goes where.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gemmule import numerics
from gemmule.config import Config, load_config
from gemmule.isa import (
    AddFlag,
    ColumnFlag,
    Command,
    MoveFlag,
    ProductFlag,
    RequantFlag,
    Unit,
    VOp,
    decode_table,
    encode_program,
    legal_flags,
)
from gemmule.resolve import OUT, resolve
from gemmule.sim.functional.execute import execute
from gemmule.sim.functional.memory import Memory

RQ, CF, AD, PR = RequantFlag, ColumnFlag, AddFlag, ProductFlag

TINY = load_config("tiny")
SMALL = Config(name="small", dim=8, bus_bytes=8, spm_kib=16, spm_banks=4, acc_kib=8, acc_banks=2, dividers=2)
BASE_ADDRESS = 1003


@pytest.fixture(params=(TINY, SMALL), ids=lambda config: config.name)
def config(request: pytest.FixtureRequest) -> Config:
    return request.param


@pytest.fixture
def memory(config: Config) -> Memory:
    memory = Memory(config, dram_bytes=1 << 16)
    rng = np.random.default_rng(11)
    memory.dram[:] = rng.integers(0, 256, memory.dram.shape)
    memory.spm[:] = rng.integers(0, 256, memory.spm.shape)
    memory.acc[:] = rng.integers(-(1 << 31), 1 << 31, memory.acc.shape)
    memory.table[:] = rng.integers(0, 256, 256)
    memory.weights[:] = rng.integers(-128, 128, memory.weights.shape)
    memory.words[:] = rng.integers(-32768, 32768, 513)
    memory.reciprocal[:] = rng.integers(1 << 15, (1 << 16) + 1, memory.reciprocal.shape)
    memory.length[:] = rng.integers(1, 37, memory.length.shape)
    memory.rise[:] = rng.integers(0, 41, memory.rise.shape)
    memory.list[:] = rng.integers(0, 1 << 16, memory.list.shape)
    memory.list[7:12] = [3, 60_000, 0, 3, 11]
    return memory


STATE = ("spm", "acc", "weights", "table", "words", "maximum", "reciprocal", "length", "total", "rise", "center",
         "root", "half", "keys", "ids", "committed", "shadow", "mask", "list", "best", "best_ids", "dram")


def check(memory: Memory, config: Config, command: Command,
          change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Run one command; memory must equal its former content after ``change``."""
    expected = {name: getattr(memory, name).copy() for name in STATE}
    change(expected)
    table = decode_table(encode_program([command]))
    bases = np.zeros(32, dtype=np.int64)
    bases[2] = BASE_ADDRESS
    resolved = resolve(table, bases, np.full(32, 1 << 15), np.zeros(16, dtype=np.int64), config)
    assert resolved[0, OUT["fault"]] == 0
    execute(memory, table, np.arange(1), resolved)
    for name in STATE:
        np.testing.assert_array_equal(getattr(memory, name), expected[name], err_msg=name)


def gather(array: np.ndarray, row: int, stride: int, m: int, n: int) -> np.ndarray:
    dim = array.shape[1]
    return np.array([[int(array[row + j // dim * stride + i, j % dim]) for j in range(n)] for i in range(m)])


def signed(x: np.ndarray, bits: int = 8) -> np.ndarray:
    return np.where(x >= 1 << (bits - 1), x - (1 << bits), x)


def words(spm: np.ndarray, row: int, stride: int, m: int, n: int) -> np.ndarray:
    return signed(gather(spm, row, stride, m, n) + 256 * gather(spm, row + stride // 2, stride, m, n), 16)


def put(spm: np.ndarray, row: int, stride: int, values: np.ndarray) -> None:
    """Bytes of ``values`` to the scratchpad; the last group's other lanes become 0."""
    dim = spm.shape[1]
    m, n = values.shape
    for i in range(m):
        for j in range(-(-n // dim) * dim):
            spm[row + j // dim * stride + i, j % dim] = int(values[i, j]) & 255 if j < n else 0


def between(table: np.ndarray, x: int) -> int:
    """The table's value at x in -32768 .. 32767, 128 apart, rounded half up."""
    low, high = int(table[(x + 32768) // 128]), int(table[(x + 32768) // 128 + 1])
    return low + ((high - low) * (x % 128) + 64) // 128


def wrapped(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


MOVES = [(unit, flags) for unit in (Unit.LOAD, Unit.STORE) for flags in range(256) if legal_flags(unit, 0, flags)]


def test_every_legal_move_is_tested() -> None:
    """Loads: ZERO, BROADCAST, INDEXED or none; to the accumulator, int32 or int8, three of these four with ADD too."""
    assert sum(unit == Unit.LOAD for unit, _ in MOVES) == 4 + 7 + 7
    assert sum(unit == Unit.STORE for unit, _ in MOVES) == 2 * 3


@pytest.mark.parametrize("size", [4, 20, 84])
@pytest.mark.parametrize(("unit", "flags"), MOVES, ids=str)
def test_move(memory: Memory, config: Config, unit: Unit, flags: int, size: int) -> None:
    """Every legal flag combination, from an odd address with odd strides (BROADCAST: from a bus boundary)."""
    dim, rows, stride = config.dim, 5, 107
    on = {flag for flag in MoveFlag if flags >> flag & 1}
    if MoveFlag.ACCUMULATOR not in on or MoveFlag.NARROW in on:
        size -= 1  # int8 rows may end anywhere
    offset = 259 if MoveFlag.BROADCAST not in on else 1264 - BASE_ADDRESS
    command = Command.make(
        unit, flags=on, base=2, offset=offset, stride=stride, bytes=size, row=40, row_stride=1, block_stride=6,
        rows=rows, list=7, last_index=12)
    numbers = [3, 12, 0, 3, 11] if MoveFlag.INDEXED in on else [0] * 5 if MoveFlag.BROADCAST in on else range(5)

    def change(new: dict[str, np.ndarray]) -> None:
        accumulator, narrow = MoveFlag.ACCUMULATOR in on, MoveFlag.NARROW in on
        element = 4 if accumulator and not narrow else 1
        array = new["acc" if accumulator else "spm"]
        for r in range(rows):
            for e in range(size // element):
                inside = 40 + r + e // dim * 6, e % dim
                outside = BASE_ADDRESS + offset + e * element + numbers[r] * stride
                if unit == Unit.STORE:
                    value = int(array[inside])
                    value = min(127, max(-128, value)) if narrow else value
                    for byte in range(element):
                        new["dram"][outside + byte] = value >> 8 * byte & 255
                    continue
                value = sum(int(new["dram"][outside + byte]) << 8 * byte for byte in range(element))
                if accumulator:
                    top = 1 << 8 * element - 1
                    value = value - 2 * top if value >= top else value
                if MoveFlag.ZERO in on:
                    value = 0
                if MoveFlag.ADD in on:
                    value = wrapped(int(array[inside]) + value)
                array[inside] = value

    check(memory, config, command, change)


REQUANTS = (
    (), (RQ.COLUMN,), (RQ.ROW,), (RQ.ROW, RQ.COLUMN), (RQ.WIDE,), (RQ.RESIDUAL,), (RQ.RELU,), (RQ.LOOKUP,),
    (RQ.RELU, RQ.LOOKUP, RQ.COLUMN), (RQ.WIDE, RQ.RESIDUAL, RQ.RELU, RQ.LOOKUP), (RQ.BIAS,), (RQ.BIAS, RQ.COLUMN),
    (RQ.BIAS, RQ.ROW), (RQ.BIAS, RQ.ROW, RQ.COLUMN, RQ.WIDE), (RQ.CLAMP,), (RQ.CLAMP, RQ.RELU, RQ.LOOKUP, RQ.BIAS),
    (RQ.WIDE, RQ.LOOKUP), (RQ.WIDE, RQ.LOOKUP, RQ.RELU, RQ.COLUMN), (RQ.RESIDUAL, RQ.RESCALE),
    (RQ.RESIDUAL, RQ.RESCALE, RQ.WIDE, RQ.RELU, RQ.COLUMN, RQ.BIAS, RQ.LOOKUP),
)


def parameter_rows(spm: np.ndarray, n: int, column: bool, bias: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mult, shift, bias) per column from the rows at 60."""
    dim, each = spm.shape[1], 3 * column + 4 * bias
    mult, shift, add = (np.zeros(n, dtype=np.int64) for _ in range(3))
    for j in range(n):
        at = [int(spm[60 + each * (j // dim) + p, j % dim]) for p in range(each)]
        if column:
            mult[j], shift[j] = at[0] + 256 * at[1], at[2]
        if bias:
            low = 3 if column else 0
            add[j] = wrapped(sum(at[low + p] << 8 * p for p in range(4)))
    return mult, shift, add


@pytest.mark.parametrize("flags", REQUANTS, ids=lambda flags: "+".join(f.name for f in flags) or "plain")
def test_requant(memory: Memory, config: Config, flags: tuple[int, ...]) -> None:
    m, n, mult, shift, shift2 = 5, 13, 40_000, 37, 9
    aux = 777 if RQ.RESIDUAL in flags else 0x30 << 8 | 0xE7  # limits -25 and 48
    command = Command.make(
        Unit.VECTOR, op=VOp.REQUANT, flags=flags, m=m, n=n, src0=9, src0_stride=17, src1=60, dst=200,
        dst_stride=24, mult=mult, shift=shift, shift2=shift2, aux=aux, context=1)

    def change(new: dict[str, np.ndarray]) -> None:
        spm = new["spm"]
        acc = gather(new["acc"], 9, 17, m, n)
        mults, shifts, bias = parameter_rows(spm, n, RQ.COLUMN in flags, RQ.BIAS in flags)
        acc = np.vectorize(wrapped)(acc + bias)
        value = numerics.requant(acc, mult, shift)
        if RQ.ROW in flags:
            value = numerics.requant_row(acc, new["reciprocal"][1, :m], new["length"][1, :m], mult, shift)
        elif RQ.COLUMN in flags:
            value = numerics.requant(acc, mults, shifts)
        if RQ.RELU in flags:
            value = np.maximum(value, 0)
        if RQ.RESIDUAL in flags:
            residual = words(spm, 200, 24, m, n)
            if RQ.RESCALE in flags:
                residual = residual * 777 + (1 << 8) >> 9
            value = value + residual
        wide = RQ.RESIDUAL in flags or RQ.WIDE in flags
        y = np.clip(value, -(1 << 15), (1 << 15) - 1) if wide else np.clip(value, -128, 127)
        if RQ.CLAMP in flags and not wide:
            y = np.clip(y, -25, 48)
        if RQ.LOOKUP in flags and not wide:
            y = new["table"][y & 255].astype(np.int64)
        elif RQ.LOOKUP in flags and RQ.RESIDUAL not in flags:
            y = np.vectorize(lambda x: between(new["words"], x))(y)
        put(spm, 200, 24, y)
        if wide:
            put(spm, 200 + 12, 24, y >> 8)

    check(memory, config, command, change)


def test_clamp_takes_the_lower_limit_first(memory: Memory, config: Config) -> None:
    """With the limits the wrong way round, everything becomes the upper one."""
    command = Command.make(
        Unit.VECTOR, op=VOp.REQUANT, flags=[RQ.CLAMP], m=3, n=5, src0=9, src0_stride=3, dst=200, dst_stride=3,
        mult=1, aux=0xF0 << 8 | 0x10)
    check(memory, config, command, lambda new: put(new["spm"], 200, 3, np.full((3, 5), -16)))


@pytest.mark.parametrize("flags", [(), (AD.RELU,), (AD.LOOKUP,), (AD.WIDE,), (AD.WIDE, AD.RELU, AD.LOOKUP)], ids=str)
def test_add(memory: Memory, config: Config, flags: tuple[int, ...]) -> None:
    m, n, mult, aux, shift = 4, 11, 900, 60_000, 13

    def change(new: dict[str, np.ndarray]) -> None:
        spm = new["spm"]
        a, b = signed(gather(spm, 10, 9, m, n)), signed(gather(spm, 50, 9, m, n))
        y = a * mult + b * aux + (1 << 12) >> 13
        y = np.maximum(y, 0) if AD.RELU in flags else y
        if AD.WIDE in flags:
            y = np.clip(y, -(1 << 15), (1 << 15) - 1)
            put(spm, 304, 9, y >> 8)
        else:
            y = np.clip(y, -128, 127)
            y = new["table"][y & 255].astype(np.int64) if AD.LOOKUP in flags else y
        put(spm, 300, 9, y)

    vector(memory, config, VOp.ADD, change, flags=flags, m=m, n=n, src0=10, src0_stride=9, src1=50, aux=aux, dst=300,
           dst_stride=9, mult=mult, shift=shift)


def vector(memory: Memory, config: Config, op: VOp, change: Callable[[dict[str, np.ndarray]], None],
           **values: int) -> None:
    flags = values.pop("flags", ())
    check(memory, config, Command.make(Unit.VECTOR, op=op, flags=flags, **values), change)


def test_product(memory: Memory, config: Config) -> None:
    def change(new: dict[str, np.ndarray]) -> None:
        spm = new["spm"]
        a, b = signed(gather(spm, 10, 5, 4, 11)), signed(gather(spm, 50, 8, 4, 11))
        put(spm, 300, 6, numerics.product(a, b, 900, 14))

    vector(memory, config, VOp.PRODUCT, change, m=4, n=11, src0=10, src0_stride=5, src1=50, aux=8, dst=300,
           dst_stride=6, mult=900, shift=14)


@pytest.mark.parametrize("shift", [22, 12, 40], ids=["spread", "saturated", "small"])
@pytest.mark.parametrize(("src0_stride", "aux", "dst_stride"), [(10, 12, 14), (9, 13, 11)], ids=["even", "odd"])
def test_product_of_words(memory: Memory, config: Config, src0_stride: int, aux: int, dst_stride: int,
                          shift: int) -> None:
    """Planes half of each operand's own stride apart, rounded down."""
    m, n = 4, 11

    def change(new: dict[str, np.ndarray]) -> None:
        spm = new["spm"]
        a, b = words(spm, 10, src0_stride, m, n), words(spm, 60, aux, m, n)
        y = np.clip(a * b * 900 + (1 << shift - 1) >> shift, -32768, 32767)
        put(spm, 300, dst_stride, y)
        put(spm, 300 + dst_stride // 2, dst_stride, y >> 8)

    vector(memory, config, VOp.PRODUCT, change, flags=(PR.WIDE,), m=m, n=n, src0=10, src0_stride=src0_stride, src1=60,
           aux=aux, dst=300, dst_stride=dst_stride, mult=900, shift=shift)


@pytest.mark.parametrize("flags", [(), (CF.COLUMN,), (CF.BIAS,), (CF.COLUMN, CF.BIAS)], ids=str)
@pytest.mark.parametrize("period", [0, 1])
def test_rope(memory: Memory, config: Config, period: int, flags: tuple[int, ...]) -> None:
    m, n = 3, 22

    def change(new: dict[str, np.ndarray]) -> None:
        spm, dim = new["spm"], config.dim
        mult, shift, bias = parameter_rows(spm, n, CF.COLUMN in flags, CF.BIAS in flags)
        acc = np.vectorize(wrapped)(gather(new["acc"], 2, 5, m, n) + bias)
        value = numerics.requant(acc, mult, shift) if CF.COLUMN in flags else numerics.requant(acc, 50_000, 33)
        x = numerics.saturate(value, 16)
        cosine, sine = np.zeros((m, n), dtype=np.int64), np.zeros((m, n), dtype=np.int64)
        for i in range(m):
            for j in range(n):
                first = 160 + i * (4 << period) + (j // dim % (1 << period)) * 4
                c0, c1, s0, s1 = (int(spm[first + p, j % dim]) for p in range(4))
                cosine[i, j] = (c0 + 256 * c1 + 32768) % 65536 - 32768
                sine[i, j] = (s0 + 256 * s1 + 32768) % 65536 - 32768
        put(spm, 300, 7, numerics.rope(x, cosine, sine, 15))

    vector(memory, config, VOp.ROPE, change, flags=flags, m=m, n=n, src0=2, src0_stride=5, src1=60, aux=160,
           dst=300, dst_stride=7, mult=50_000, shift=33, shift2=15, period=period)


@pytest.mark.parametrize(("dst", "dst_stride"), [(2, 5), (100, 7)], ids=["in place", "elsewhere"])
def test_rescale(memory: Memory, config: Config, dst: int, dst_stride: int) -> None:
    """Accumulator rows, half up, the lanes beyond n too; rises beyond 31 leave 0."""
    memory.rise[1, :4] = [0, 3, 31, 40]

    def change(new: dict[str, np.ndarray]) -> None:
        acc, dim = new["acc"].copy(), config.dim
        for i in range(4):
            rise = int(new["rise"][1, i])
            for g in range(-(-11 // dim)):
                for lane in range(dim):
                    value = int(acc[2 + g * 5 + i, lane])
                    value = value + (1 << rise - 1) >> rise if rise else value
                    new["acc"][dst + g * dst_stride + i, lane] = value

    vector(memory, config, VOp.RESCALE, change, m=4, n=11, src0=2, src0_stride=5, dst=dst, dst_stride=dst_stride,
           context=1)


@pytest.mark.parametrize("flags", [(), (CF.COLUMN,), (CF.BIAS,), (CF.COLUMN, CF.BIAS)], ids=str)
def test_i_gelu(memory: Memory, config: Config, flags: tuple[int, ...]) -> None:
    """erf by I-BERT's parabola, 1812 to its top; the constants belong to a scale of sqrt(2) / 1024."""
    m, n, found = 4, 13, []

    def gelu(x: int) -> int:
        parabola = (min(abs(x), 1812) - 1812) ** 2 - 3_630_798
        erf = (parabola if x > 0 else -parabola if x < 0 else 0) >> 14
        found.append(-x * (erf - 222) + (1 << 12) >> 13)
        return min(127, max(-128, found[-1]))

    def change(new: dict[str, np.ndarray]) -> None:
        mult, shift, bias = parameter_rows(new["spm"], n, CF.COLUMN in flags, CF.BIAS in flags)
        acc = np.vectorize(wrapped)(gather(new["acc"], 2, 5, m, n) + bias)
        value = numerics.requant(acc, mult, shift) if CF.COLUMN in flags else numerics.requant(acc, 50_000, 36)
        put(new["spm"], 300, 7, np.vectorize(gelu)(np.clip(value, -32_768, 32_767)))

    if CF.COLUMN in flags:  # shifts that leave most values between -2**13 and 2**13
        memory.spm[62:90] = 34
    vector(memory, config, VOp.I_GELU, change, flags=flags, m=m, n=n, src0=2, src0_stride=5, src1=60, dst=300,
           dst_stride=7, mult=50_000, shift=36, shift2=13)
    assert len(set(found)) > 20


def test_i_gelu_of_a_few_numbers(memory: Memory, config: Config) -> None:
    """On a scale of 2**0.5 / 1024 in, 2**-5 out: GELU(1) = 0.841, GELU(-1) = -0.159, beyond 3 the number itself."""
    scale_in, scale_out = 2 ** 0.5 / 1024, 2 ** 0.5 / 1024 * 0.2888 / 128 * 2 ** 13
    numbers = (0.0, 1.0, -1.0, 3.2)
    memory.acc[9, :4] = [round(x / scale_in) for x in numbers]
    before = memory.spm.copy()
    table = decode_table(encode_program([Command.make(
        Unit.VECTOR, op=VOp.I_GELU, m=1, n=4, src0=9, dst=200, mult=1, shift2=13)]))
    none = np.zeros(32, dtype=np.int64)
    execute(memory, table, np.arange(1), resolve(table, none, none, none[:16], config))
    found = memory.spm[200, :4].astype(np.int8) * scale_out
    assert np.allclose(found, (0.0, 0.841, -0.159, 3.2), atol=0.018 + scale_out / 2)
    assert (memory.spm[201:] == before[201:]).all()


def test_table(memory: Memory, config: Config) -> None:
    def change(new: dict[str, np.ndarray]) -> None:
        dim = config.dim
        new["table"][:] = [new["spm"][21 + entry // dim, entry % dim] for entry in range(256)]

    vector(memory, config, VOp.TABLE, change, src0=21)


def test_word_table(memory: Memory, config: Config) -> None:
    """Low bytes in ceil(513 / DIM) rows, high bytes in as many behind them."""
    def change(new: dict[str, np.ndarray]) -> None:
        rows = -(-513 // config.dim)
        for i in range(513):
            word = sum(int(new["spm"][21 + plane * rows + i // config.dim, i % config.dim]) << 8 * plane
                       for plane in (0, 1))
            new["words"][i] = word - (word >> 15 << 16)

    vector(memory, config, VOp.WORD_TABLE, change, src0=21)


def test_word_table_ends(memory: Memory, config: Config) -> None:
    """The last entry counts only for the inputs beyond entry 511; saturated inputs reach both ends."""
    memory.words[:] = 0
    memory.words[0], memory.words[511], memory.words[512] = -700, 1280, 25_600
    memory.acc[9, :4] = [1 << 20, -(1 << 20), 32_767 - 127, 32_767 - 126]
    expected = [1280 + (24_320 * 127 + 64) // 128, -700, 1280, 1280 + 190]
    vector(memory, config, VOp.REQUANT, lambda new: (put(new["spm"], 200, 4, np.array([expected])), put(
        new["spm"], 202, 4, np.array([expected]) >> 8), None)[-1], flags=[RQ.WIDE, RQ.LOOKUP], m=1, n=4, src0=9, mult=1,
        dst=200, dst_stride=4)
