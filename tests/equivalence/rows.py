"""One row of a softmax, a norm or an argmax on the device, in surroundings that must not matter."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from gemmule.config import Config
from gemmule.isa import (
    ArgmaxFlag,
    Command,
    MatrixFlag,
    MoveFlag,
    NormFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Unit,
    VOp,
    encode_program,
)
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

from .mutant_programs import LINE, in_turn

RQ, NM, SM, AM = RequantFlag, NormFlag, SoftmaxFlag, ArgmaxFlag

__all__ = ["MASKED", "Attended", "Place", "argmax", "attend", "normalize"]

MASKED = -1
"""What stands for a column that the row does not see."""
NORMALIZED = 32
"""Rows between results and normalised weights."""
make = Command.make


@dataclass(frozen=True)
class Place:
    """Where a row is computed and what is computed beside it.

    Parameters
    ----------
    seed: chooses the contents of everything else, base rows and strides.
    rows, row: rows of each command, and which of them is the row in question.
    context: statistics context.
    mask: "none"; "causal", which hides the columns behind the row's own; "tree", which hides some of the last ``rows``.
    hidden: columns that the mask hides (tree).
    cuts: places between the columns at which the row is cut in pieces.
    shuffled: the columns come in another order.
    """

    seed: int = 0
    rows: int = 1
    row: int = 0
    context: int = 0
    mask: str = "none"
    hidden: int = 0
    cuts: tuple[int, ...] = ()
    shuffled: bool = False

    def pieces(self, count: int) -> list[list[int]]:
        """The row's ``count`` visible columns by number, and ``MASKED`` ones, as they stand in the row's pieces."""
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(count) if self.shuffled else np.arange(count)
        slots = order.tolist()
        if self.mask == "causal":
            slots += [MASKED] * (self.rows - 1 - self.row)
        elif self.mask == "tree":
            hidden = max(min(self.hidden, self.rows), self.rows - count)
            for at in sorted(rng.choice(self.rows, hidden, replace=False).tolist()):
                slots.insert(count + hidden - self.rows + at, MASKED)
        edges = [0, *sorted({cut for cut in self.cuts if 0 < cut < len(slots)}), len(slots)]
        return [slots[begin:end] for begin, end in zip(edges, edges[1:])]


@dataclass
class Memories:
    """Random contents of both memories, with commands that leave them changed.

    ``spm``: uint8 [rows, dim]; ``acc``: int32 [rows, dim].
    """

    config: Config
    rng: np.random.Generator
    commands: list[Command] = field(default_factory=list)
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(16, dtype=np.int64))

    def __post_init__(self) -> None:
        dim = self.config.dim
        self.spm = self.rng.integers(0, 256, (self.config.spm_rows, dim), dtype=np.uint8)
        self.acc = self.rng.integers(-(1 << 31), 1 << 31, (self.config.acc_rows, dim)).astype(np.int32)
        self.banks = (self.rng.permutation(self.config.spm_banks) * self.config.spm_bank_rows).tolist()

    def at(self, row: int, stride: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Index of an operand ``[rows, columns]`` in a memory: its rows and lanes."""
        column = np.arange(columns)
        rows_ = row + column // self.config.dim * stride + np.arange(rows)[:, None]
        return rows_, np.broadcast_to(column % self.config.dim, rows_.shape)

    def run(self, device: RtlDevice | Simulator) -> None:
        """Load both memories, run the commands one by one, and read both memories."""
        config, commands = self.config, []
        spm, acc = config.spm_bank_rows * config.dim, 4 * config.acc_bank_rows * config.dim
        moves = [({"row": i * config.spm_bank_rows, "bytes": spm, "offset": i * spm} | LINE, [])
                 for i in range(config.spm_banks)]
        moves += [({"row": i * config.acc_bank_rows, "bytes": acc, "offset": self.spm.nbytes + i * acc} | LINE,
                   [MoveFlag.ACCUMULATOR]) for i in range(config.acc_banks)]
        for unit in (Unit.LOAD, Unit.STORE):
            commands += [make(unit, flags=flags, **fields) for fields, flags in moves]
            if unit is Unit.LOAD:
                commands += self.commands
        size = self.spm.nbytes + self.acc.nbytes
        device.bases[:], device.limits[:], device.lengths[:] = 0, size, self.lengths
        device.write_dram(0, self.spm.tobytes() + self.acc.tobytes())
        device.load_program(encode_program(in_turn(commands)), size)
        result = device.run()
        assert result.fault == 0, (result.fault, result.fault_index)
        data = np.frombuffer(device.read_dram(0, size), dtype=np.uint8)
        self.spm = data[:self.spm.nbytes].reshape(self.spm.shape).copy()
        self.acc = data[self.spm.nbytes:].view("<i4").reshape(self.acc.shape).copy()

    def gap(self, least: int) -> int:
        """A stride or distance of at least so many rows; even."""
        return (least + int(self.rng.integers(0, 3)) + 1) // 2 * 2


class Attended(NamedTuple):
    """A softmax row times V, bit for bit what the device made of it."""

    weights: list[int]
    """Of the visible columns; 8 bits."""
    normalized: list[int]
    """The same with 16 bits."""
    context: list[int]
    """Sums, int32."""
    result: list[int]
    leaked: bool
    """A masked column has a weight."""


class _Piece(NamedTuple):
    """Columns of a softmax row that one command handles."""

    slots: np.ndarray
    at: int
    """Row of its scores; its weights stand as far from where weights begin."""
    stride: int
    commands: tuple[Command, ...]
    """Maximum, weights, product, normalised weights."""


def _pieces(memory: Memories, place: Place, shares: list[np.ndarray], scores: np.ndarray, values: np.ndarray,
            kind: int, online: bool, total: dict[str, int]) -> list[_Piece]:
    """Puts the row's columns into ``memory``; ``total``: fields of the context's accumulator rows."""
    config, rng, m, d = memory.config, memory.rng, place.rows, values.shape[1]
    left, right, out, bitmaps = memory.banks
    mask = {"none": [], "causal": [SM.CAUSAL], "tree": [SM.TREE]}[place.mask]
    if place.mask == "tree":
        bits = rng.integers(0, 2, (m, 8 * config.dim))
        bits[place.row, :m] = np.concatenate(shares)[-m:] != MASKED
        memory.spm[bitmaps:bitmaps + m] = np.packbits(bits, axis=1, bitorder="little")
    pieces, after = [], sum(map(len, shares))
    at, right = int(rng.integers(0, 5)), right + config.preload * int(rng.integers(0, 5))
    for number, slots in enumerate(shares):
        n, stride, seen = len(slots), memory.gap(2 * m), slots != MASKED
        after -= n
        rows, lanes = memory.at(at, stride, m, n)
        memory.acc[rows[place.row, seen], lanes[place.row, seen]] = scores[slots[seen]]
        depth = -(-n // config.preload) * config.preload
        rows, lanes = memory.at(right, depth, n, d)
        memory.spm[rows[seen], lanes[seen]] = values[slots[seen]].view(np.uint8)
        offset = int(rng.integers(0, 200))
        memory.lengths[number + 1] = after + offset
        flags = [*mask, *[SM.CONTINUE] * (number > 0), *[SM.ONLINE] * online]
        step = partial(make, Unit.VECTOR, src0=at, src0_stride=stride, src1=bitmaps, m=m, n=n, mult=1, shift=18,
                       context=place.context, aux=number + 1 | offset << 4, dst_stride=stride)
        pieces.append(_Piece(slots, at, stride, (
            step(op=VOp.SOFTMAX_MAX, flags=flags),
            step(op=VOp.SOFTMAX_EXP, flags=[*flags, *[SM.MORE] * (after > 0)], dst=left + at, period=kind),
            make(Unit.MATRIX, a_row=left + at, a_stride=stride, b_row=right, b_stride=depth, c_row=total["src0"],
                 c_stride=total["src0_stride"], m=m, n=d, k=n,
                 flags=[MatrixFlag.A_UNSIGNED, *[MatrixFlag.ACCUMULATE] * (number > 0)]),
            step(op=VOp.SOFTMAX_NORM, flags=[*mask, SM.WIDE], dst=out + NORMALIZED + at, period=kind))))
        at, right = at + -(-n // config.dim) * stride, right + -(-d // config.dim) * depth
    return pieces


def attend(device: RtlDevice | Simulator, place: Place, scores: np.ndarray, values: np.ndarray, *,
           kind: int = 0, online: bool = False, pieces: list[list[int]] | None = None) -> Attended:
    """Softmax of the row ``scores[n]`` (int32, eight octaves each side) times ``values[n, d]`` (int8).

    Two passes; or one (``online``), whose result depends on which columns are in a piece. ``kind``: exponential.
    ``pieces`` are those of ``place`` by default.
    """
    shares = [np.array(slots) for slots in pieces or place.pieces(len(scores))]
    memory, m, d = Memories(device.config, np.random.default_rng(place.seed)), place.rows, values.shape[1]
    left, _, out, _ = memory.banks
    gap, sums = memory.gap(m), 3 * device.config.acc_bank_rows + int(memory.rng.integers(0, 16))
    total = {"src0": sums, "src0_stride": gap, "dst_stride": gap, "m": m, "n": d, "context": place.context}
    parts = _pieces(memory, place, shares, scores, values, kind, online, total)
    if online:
        rescale = make(Unit.VECTOR, op=VOp.RESCALE, dst=sums, **total)
        for number, piece in enumerate(parts):
            maximum, weights, product, _ = piece.commands
            memory.commands += [maximum, *[rescale] * (number > 0), weights, product]
    else:
        memory.commands += [command for kind in zip(*(piece.commands for piece in parts)) for command in kind]
    memory.commands.append(make(Unit.VECTOR, op=VOp.REQUANT, flags=[RQ.ROW], dst=out, mult=40000, shift=16, **total))
    memory.run(device)

    # weights, low and high bytes of the normalised ones
    leaked, found = False, np.zeros((3, len(scores)), dtype=np.int64)
    for slots, at, stride, _ in parts:
        for plane, row in enumerate((left, out + NORMALIZED, out + NORMALIZED + stride // 2)[:1 if online else 3]):
            line = memory.spm[memory.at(row + at, stride, m, len(slots))][place.row]
            found[plane, slots[slots != MASKED]] = line[slots != MASKED]
            leaked = leaked or bool(line[slots == MASKED].any())
    context, result = memory.acc[memory.at(sums, gap, m, d)], memory.spm[memory.at(out, gap, m, d)].view(np.int8)
    return Attended(found[0].tolist(), [] if online else (found[1] + 256 * found[2]).tolist(),
                    context[place.row].tolist(), result[place.row].tolist(), leaked)


def normalize(device: RtlDevice | Simulator, place: Place, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None, *,
              mean: bool, wide: bool) -> list[int]:
    """LayerNorm (``mean``) or RMSNorm of the row ``x[n]`` (int16), with int16 ``gamma`` and int32 ``beta``.

    The statistics of all rows come from one command, the rows from one each.
    """
    memory, n = Memories(device.config, np.random.default_rng(place.seed)), len(x)
    dim, m, groups = memory.config.dim, place.rows, -(-n // memory.config.dim)
    source, parameters, out, _ = (bank + int(memory.rng.integers(0, 20)) for bank in memory.banks)
    stride, dst_stride = memory.gap(2 * m), memory.gap(2 * m)
    rows, lanes = memory.at(source, stride, m, n)
    for plane in range(2):
        memory.spm[rows[place.row] + plane * (stride // 2), lanes[place.row]] = x >> 8 * plane & 255
    planes = [gamma >> 8 * plane & 255 for plane in range(2)]
    planes += [beta >> 8 * plane & 255 for plane in range(4)] if beta is not None else []
    for p, plane in enumerate(planes):
        for g in range(groups):
            part = plane[g * dim:(g + 1) * dim]
            memory.spm[parameters + g * len(planes) + p, :len(part)] = part
    flags = [NM.MEAN] * mean
    fields = {"src0_stride": stride, "n": n, "context": place.context, "src1": parameters, "dst_stride": dst_stride}
    memory.commands = [
        make(Unit.VECTOR, op=VOp.NORM_STAT, flags=flags, m=m, src0=source, mult=3, shift=20, **fields),
        make(Unit.VECTOR, op=VOp.NORM_APPLY, m=m, src0=source, dst=out, shift=12,
             flags=flags + [NM.BIAS] * (beta is not None) + [NM.WIDE] * wide, **fields)]
    memory.run(device)
    rows, lanes = memory.at(out, dst_stride, m, n)
    low, high = (memory.spm[rows[place.row] + plane * (dst_stride // 2), lanes[place.row]] for plane in range(2))
    return (low + 256 * high.astype(np.int64) if wide else low).tolist()


def argmax(device: RtlDevice | Simulator, place: Place, x: np.ndarray) -> int:
    """Number of the largest of ``x[n]`` (int16), the first of equal ones."""
    memory, m = Memories(device.config, np.random.default_rng(place.seed)), place.rows
    at, _, out, _ = memory.banks
    first, dst = 0, int(memory.rng.integers(0, 40))
    for slots in place.pieces(len(x)):
        n, stride = len(slots), memory.gap(2 * m)
        rows, lanes = memory.at(at, stride, m, n)
        for plane in range(2):
            memory.spm[rows[place.row] + plane * (stride // 2), lanes[place.row]] = x[slots] >> 8 * plane & 255
        memory.commands.append(make(
            Unit.SELECT, op=SOp.ARGMAX, flags=[AM.CONTINUE] * (first > 0), src0=at, src0_stride=stride, m=m,
            n=n, first=first, dst=dst))
        first, at = first + n, at + -(-n // memory.config.dim) * stride
    memory.commands.append(make(Unit.SELECT, op=SOp.LIST_STORE, first=dst + place.row, n=1, dst=out))
    memory.run(device)
    return int(memory.spm[out].view("<u2")[0])
