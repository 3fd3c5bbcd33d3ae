"""Data effects of each command against element-by-element statements of the contract.

The whole memory is compared, so a stray write is seen. Arithmetic comes from ``gemmule.numerics``
(tested on its own); what is stated here is which element goes where.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gemmule import numerics
from gemmule.config import Config, load_config
from gemmule.isa import Command, MatrixFlag, Unit, VectorFlag, VOp, encode_program
from gemmule.sim.run import Model

TINY = load_config("tiny")
SMALL = Config(name="small", dim=8, bus_bytes=8, spm_kib=16, spm_banks=4, acc_kib=8, acc_banks=2, dividers=2)
F = VectorFlag


@pytest.fixture(params=(TINY, SMALL), ids=lambda config: config.name)
def model(request: pytest.FixtureRequest) -> Model:
    model = Model(request.param, dram_bytes=1 << 16)
    rng = np.random.default_rng(11)
    memory = model.memory
    memory.dram[:] = rng.integers(0, 256, memory.dram.shape)
    memory.spm[:] = rng.integers(0, 256, memory.spm.shape)
    memory.acc[:] = rng.integers(-(1 << 31), 1 << 31, memory.acc.shape)
    memory.table[:] = rng.integers(0, 256, 256)
    memory.maximum[:] = rng.integers(-1000, 1000, memory.maximum.shape)
    memory.reciprocal[:] = rng.integers(1 << 15, (1 << 16) + 1, memory.maximum.shape)
    memory.length[:] = rng.integers(1, 37, memory.maximum.shape)
    memory.root[:] = rng.integers((1 << 16) + 1, (1 << 17) + 1, memory.maximum.shape)
    memory.half[:] = rng.integers(-8, 10, memory.maximum.shape)
    model.limits[:] = 1 << 16
    return model


STATE = ("spm", "acc", "table", "maximum", "reciprocal", "length", "root", "half", "dram")


def check(model: Model, command: Command, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Run one command; memory must equal its former content after ``change``."""
    model.load_program(encode_program([command]), 1 << 15)
    expected = {name: getattr(model.memory, name).copy() for name in STATE}
    change(expected)
    result = model.run()
    assert result.fault == 0
    for name in STATE:
        np.testing.assert_array_equal(getattr(model.memory, name), expected[name], err_msg=name)


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


@pytest.mark.parametrize("size", [1, 4, 21, 64])
@pytest.mark.parametrize("unit", [Unit.LOAD, Unit.STORE])
def test_move(model: Model, unit: Unit, size: int) -> None:
    dim = model.config.dim
    command = Command.make(
        unit, base=2, offset=256, stride=104, bytes=size, row=40, row_stride=1, block_stride=6, rows=5)
    model.bases[2] = 1024

    def change(new: dict[str, np.ndarray]) -> None:
        for r in range(5):
            for k in range(size):
                inside, outside = (40 + r + k // dim * 6, k % dim), 1024 + 256 + r * 104 + k
                if unit == Unit.LOAD:
                    new["spm"][inside] = new["dram"][outside]
                else:
                    new["dram"][outside] = new["spm"][inside]

    check(model, command, change)


@pytest.mark.parametrize("flags", [(), (0,), (1,), (2,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 9), (7, 16, 13), (8, 8, 16)], ids=str)
def test_matrix(model: Model, shape: tuple[int, int, int], flags: tuple[int, ...]) -> None:
    m, n, k = shape
    dim = model.config.dim
    command = Command.make(
        Unit.MATRIX, flags=flags, m=m, n=n, k=k, a_row=6, a_stride=11, b_row=100, b_stride=20,
        c_row=30, c_stride=9)

    def change(new: dict[str, np.ndarray]) -> None:
        a = gather(new["spm"], 6, 11, m, k)
        a = a if MatrixFlag.A_UNSIGNED in flags else signed(a)
        if MatrixFlag.B_TRANSPOSED in flags:
            b = signed(gather(new["spm"], 100, 20, n, k)).T
        else:
            b = signed(gather(new["spm"], 100, 20, k, n))
        product = np.zeros((m, -(-n // dim) * dim), dtype=np.int64)
        product[:, :n] = a @ b
        for i in range(m):
            for j in range(product.shape[1]):
                at = (30 + j // dim * 9 + i, j % dim)
                old = int(new["acc"][at]) if MatrixFlag.ACCUMULATE in flags else 0
                new["acc"][at] = (old + int(product[i, j]) + (1 << 31)) % (1 << 32) - (1 << 31)

    check(model, command, change)


def test_matrix_is_exact_on_the_largest_sums() -> None:
    """K = 4096 rows of extreme values: beyond what float32 could add exactly."""
    model = Model(load_config("base"))
    k, dim = 4096, 16
    model.memory.spm[0:256] = 255
    model.memory.spm[4096:4096 + k] = 0x80
    command = Command.make(
        Unit.MATRIX, flags=[0], m=1, n=dim, k=k, a_row=0, a_stride=1, b_row=4096, b_stride=k, c_row=0,
        c_stride=1)
    model.load_program(encode_program([command]), 0)
    model.run()
    assert (model.memory.acc[0] == -255 * 128 * k).all()


REQUANTS = (
    (), (F.COLUMN,), (F.ROW,), (F.ROW, F.COLUMN), (F.WIDE,), (F.RESIDUAL,), (F.RELU,), (F.LOOKUP,),
    (F.RELU, F.LOOKUP, F.COLUMN), (F.WIDE, F.RESIDUAL, F.RELU, F.LOOKUP),
)


@pytest.mark.parametrize("flags", REQUANTS, ids=lambda flags: "+".join(f.name for f in flags) or "plain")
def test_requant(model: Model, flags: tuple[VectorFlag, ...]) -> None:
    m, n, mult, shift = 5, 13, 40_000, 37
    command = Command.make(
        Unit.VECTOR, op=VOp.REQUANT, flags=flags, m=m, n=n, src0=9, src0_stride=17, src1=60, dst=200,
        dst_stride=24, mult=mult, shift=shift, context=1)

    def change(new: dict[str, np.ndarray]) -> None:
        spm, dim = new["spm"], model.config.dim
        acc = gather(new["acc"], 9, 17, m, n)
        residual = words(spm, 200, 24, m, n) if F.RESIDUAL in flags else None
        value = numerics.requant(acc, mult, shift)
        if F.ROW in flags:
            value = numerics.requant_row(acc, new["reciprocal"][1, :m], new["length"][1, :m], mult, shift)
        elif F.COLUMN in flags:
            for j in range(n):
                low, high, by = (int(spm[60 + 3 * (j // dim) + p, j % dim]) for p in range(3))
                value[:, j] = numerics.requant(acc[:, j], low + 256 * high, by)
        y = numerics.requant_store(
            value, relu=F.RELU in flags, wide=F.WIDE in flags, residual=residual,
            table=new["table"] if F.LOOKUP in flags else None)
        put(spm, 200, 24, y)
        if F.WIDE in flags or F.RESIDUAL in flags:
            put(spm, 200 + 12, 24, y >> 8)

    check(model, command, change)


def vector(model: Model, op: VOp, change: Callable[[dict[str, np.ndarray]], None], **values: int) -> None:
    flags = values.pop("flags", ())
    command = Command.make(Unit.VECTOR, op=op, flags=flags, **values)
    check(model, command, change)


def test_product(model: Model) -> None:
    def change(new: dict[str, np.ndarray]) -> None:
        spm = new["spm"]
        a, b = signed(gather(spm, 10, 5, 4, 11)), signed(gather(spm, 50, 8, 4, 11))
        put(spm, 300, 6, numerics.product(a, b, 900, 14))

    vector(model, VOp.PRODUCT, change, m=4, n=11, src0=10, src0_stride=5, src1=50, aux=8, dst=300,
           dst_stride=6, mult=900, shift=14)


@pytest.mark.parametrize("flags", [(), (F.COLUMN,)], ids=("plain", "column"))
@pytest.mark.parametrize("period", [0, 1])
def test_rope(model: Model, period: int, flags: tuple[VectorFlag, ...]) -> None:
    m, n = 3, 22

    def change(new: dict[str, np.ndarray]) -> None:
        spm, dim = new["spm"], model.config.dim
        acc = gather(new["acc"], 2, 5, m, n)
        mult, shift = np.full(n, 50_000), np.full(n, 33)
        if flags:
            for j in range(n):
                low, high, shift[j] = (int(spm[120 + 3 * (j // dim) + p, j % dim]) for p in range(3))
                mult[j] = low + 256 * high
        x = numerics.saturate(numerics.requant(acc, mult, shift), 16)
        cosine, sine = np.zeros((m, n), dtype=np.int64), np.zeros((m, n), dtype=np.int64)
        for i in range(m):
            for j in range(n):
                first = 160 + i * (4 << period) + (j // dim % (1 << period)) * 4
                c0, c1, s0, s1 = (int(spm[first + p, j % dim]) for p in range(4))
                cosine[i, j] = (c0 + 256 * c1 + 32768) % 65536 - 32768
                sine[i, j] = (s0 + 256 * s1 + 32768) % 65536 - 32768
        put(spm, 300, 7, numerics.rope(x, cosine, sine, 15))

    vector(model, VOp.ROPE, change, flags=flags, m=m, n=n, src0=2, src0_stride=5, src1=120, aux=160,
           dst=300, dst_stride=7, mult=50_000, shift=33, shift2=15, period=period)


def test_rms(model: Model) -> None:
    m, n = 4, 14

    def statistic(new: dict[str, np.ndarray]) -> None:
        x = words(new["spm"], 30, 16, m, n)
        new["root"][2, :m], new["half"][2, :m] = numerics.rms_statistic(x, 77, 9)

    vector(model, VOp.RMS_STAT, statistic, m=m, n=n, src0=30, src0_stride=16, mult=77, shift=9, context=2)

    def apply(new: dict[str, np.ndarray]) -> None:
        spm, dim = new["spm"], model.config.dim
        gamma = np.array([
            int(spm[90 + 2 * (j // dim), j % dim]) + 256 * int(spm[91 + 2 * (j // dim), j % dim])
            for j in range(n)])
        y = numerics.rms_apply(
            words(spm, 30, 16, m, n), new["root"][2, :m], new["half"][2, :m], signed(gamma, 16), 19)
        put(spm, 300, 6, y)

    vector(model, VOp.RMS_APPLY, apply, m=m, n=n, src0=30, src0_stride=16, src1=90, dst=300, dst_stride=6,
           shift=19, context=2)


@pytest.mark.parametrize("flags", [(), (F.CAUSAL,)], ids=("all", "causal"))
def test_softmax(model: Model, flags: tuple[VectorFlag, ...]) -> None:
    m, n, mult, shift = 5, 11, 33_000, 32
    seen = [n - m + 1 + i if flags else n for i in range(m)]
    operands = {"m": m, "n": n, "src0": 7, "src0_stride": 9, "mult": mult, "shift": shift, "context": 3}

    def maximum(new: dict[str, np.ndarray]) -> None:
        t = numerics.scores(gather(new["acc"], 7, 9, m, n), mult, shift)
        new["maximum"][3, :m] = [t[i, :seen[i]].max() for i in range(m)]

    vector(model, VOp.SOFTMAX_MAX, maximum, flags=flags, **operands)

    def weights(new: dict[str, np.ndarray]) -> None:
        t = numerics.scores(gather(new["acc"], 7, 9, m, n), mult, shift)
        p = numerics.exp2(new["maximum"][3, :m, None] - t)
        for i in range(m):
            p[i, seen[i]:] = 0
            total = int(p[i].sum())
            new["length"][3, i] = total.bit_length()
            new["reciprocal"][3, i] = (1 << 15 + total.bit_length()) // total
        put(new["spm"], 300, 6, np.minimum(255, numerics.rshr(p, 12)))

    vector(model, VOp.SOFTMAX_EXP, weights, flags=flags, dst=300, dst_stride=6, **operands)
    assert model.memory.spm[300:305, 0].any()


def test_table(model: Model) -> None:
    def change(new: dict[str, np.ndarray]) -> None:
        dim = model.config.dim
        new["table"][:] = [new["spm"][21 + entry // dim, entry % dim] for entry in range(256)]

    vector(model, VOp.TABLE, change, src0=21)
