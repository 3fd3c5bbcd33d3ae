"""Bench of the vector unit: random commands against the reference, every cycle and every stored byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.vector.vector import Vector
from gemmule.isa import NormFlag, ProductFlag, Unit, VOp, legal_flags
from gemmule.operations import needs
from gemmule.timing import Timing

from ..bench import Simulated
from .reference import Device
from .trace import SOFTMAX_OPS, Command, has_tree, parameter_rows, stride1, trace

__all__ = ["legal", "make", "operations", "play", "scale", "shape", "small"]

FROM_SCRATCHPAD = (VOp.PRODUCT, VOp.ADD, VOp.NORM_STAT, VOp.NORM_APPLY, VOp.TABLE, VOp.WORD_TABLE)


def small(dim: int, dividers: int, *, comparison_modes: bool = True, passes: int = 1) -> Config:
    """1024 scratchpad rows and 256 accumulator rows of ``dim`` lanes."""
    return Config(
        dim=dim, bus_bytes=dim, spm_kib=dim, spm_banks=2, acc_kib=dim, acc_banks=2, preload=1,
        stat_rows=16, stat_contexts=2, dividers=dividers, comparison_modes=comparison_modes,
        vector_passes=passes)


def shape(rng: np.random.Generator, dim: int) -> tuple[int, int]:
    """Rows and columns, edges of the column groups included."""
    return int(rng.choice([1, 1, 2, 3, 5, 9])), int(rng.choice([1, 2, dim - 1, dim, dim + 1, 3 * dim - 2]))


def operations(comparison_modes: bool) -> list[VOp]:
    """Operations of a device with or without comparison modes."""
    return [op for op in VOp if comparison_modes or not needs(Unit.VECTOR, op, 0)]


def legal(device: Device, op: VOp) -> list[int]:
    """A random legal set of flag bits."""
    rng = device.rng
    while True:
        flags = [bit for bit in range(8) if rng.random() < 0.3]
        if op is VOp.NORM_STAT and NormFlag.ROUND in flags and not device.comparison_modes:
            continue
        if legal_flags(Unit.VECTOR, op, sum(1 << bit for bit in flags)):
            return flags


def make(device: Device, op: VOp, flags: Iterable[int] = (), *, m: int, n: int) -> Command:
    """A random command of this shape: sources in the lower half of the scratchpad, dst above."""
    rng, dim, flags = device.rng, device.dim, {int(f) for f in flags}
    half, groups = len(device.spm) // 2, -(-n // dim)
    c = {name: int(rng.integers(0, 1 << width)) for name, width in (
        ("mult", 16), ("shift", 6), ("shift2", 6), ("aux", 16))}
    if rng.random() < 0.8:  # near the result's width, so that few values saturate or vanish
        low, high = {VOp.PRODUCT: (22, 38) if ProductFlag.WIDE in flags else (14, 26),
                     VOp.ADD: (8, 20)}.get(op, (18, 42))
        c["shift"] = int(rng.integers(low, high))
        c["shift2"] = int(rng.integers(14, 24))
    c |= {f"{name}_stride": 2 * m + 2 * int(rng.integers(0, 3)) for name in ("src0", "dst")}
    c |= {"op": int(op), "flags": sum(1 << f for f in flags), "m": m, "n": n, "zero": 0, "after": 0,
          "context": int(rng.integers(0, 2)), "period": int(rng.integers(0, 3)),
          "apart": int(op in (VOp.PRODUCT, VOp.ADD) and rng.random() < 0.5)}
    if op is VOp.ROPE:
        c["aux"] = int(rng.integers(0, half - (m * 4 << c["period"]) + 1))
    elif op is VOp.PRODUCT:
        c["aux"] = (2 if ProductFlag.WIDE in flags else 1) * m + int(rng.integers(0, 3))
    span1 = parameter_rows(c) * groups
    if has_tree(c):
        span1 = m
    if op in (VOp.PRODUCT, VOp.ADD):
        span1 = (groups - 1) * stride1(c) + m + (stride1(c) // 2) * (op is VOp.PRODUCT and ProductFlag.WIDE in flags)
    c["src1"] = int(rng.integers(0, half - span1 + 1))
    c["dst"] = half + int(rng.integers(0, half - groups * c["dst_stride"] + 1))
    limit = half if op in FROM_SCRATCHPAD else len(device.acc)
    if op is VOp.RESCALE:
        limit //= 2
    span0 = {VOp.TABLE: 256 // dim, VOp.WORD_TABLE: 2 * (512 // dim + 1)}.get(op, groups * c["src0_stride"])
    c["src0"] = int(rng.integers(0, max(limit - span0, 0) + 1))
    if op is VOp.RESCALE:  # in place, or into the upper half of the accumulator
        c["dst"] = limit + int(rng.integers(0, limit - groups * c["dst_stride"] + 1))
        if rng.random() < 0.5:
            c |= {"dst": c["src0"], "dst_stride": c["src0_stride"]}
    if op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM) and not device.comparison_modes:
        c["period"] = 0
    if op is VOp.NORM_APPLY:
        c["shift"] = int(rng.integers(8, 20))
    if op is VOp.NORM_STAT and rng.random() < 0.5:
        c["shift"] = int(rng.integers(0, 12))
    if op is VOp.ABSMAX:
        c["context"] = 0
    if op in SOFTMAX_OPS:
        c["after"] = int(rng.choice([0, 1, m, n, 3 * dim]))
        c["shift"] = 32 if rng.random() < 0.7 else int(rng.integers(28, 47))
        c["mult"] = int(rng.integers(1, 20000))
    return c


def scale(device: Device, c: Command) -> Command:
    """Give a command's accumulator rows, and mostly its bias, a random magnitude; returns the command."""
    rng, groups = device.rng, -(-c["n"] // device.dim)
    bits = int(rng.integers(8, 33))
    rows = device.acc[c["src0"]:c["src0"] + groups * c["src0_stride"]]
    rows[:] = rng.integers(-(1 << bits - 1), 1 << bits - 1, rows.shape)
    rows[rng.random(rows.shape) < 0.05] = rng.choice([-(1 << 31), (1 << 31) - 1])
    if parameter_rows(c) in (4, 7) and rng.random() < 0.8:
        for g in range(groups):
            end = c["src1"] + (g + 1) * parameter_rows(c)
            bias = rng.integers(-(1 << bits - 1), 1 << bits - 1, device.dim)
            bias[rng.random(device.dim) < 0.1] = rng.choice([-(1 << 31), (1 << 31) - 1])
            device.spm[end - 4:end] = [bias >> 8 * i & 255 for i in range(4)]
    return c


@lru_cache(maxsize=4)
def simulated(config: Config) -> Simulated:
    """The unit's simulator, for all commands that one after the other are played on this configuration."""
    return Simulated(Vector(config=config, timing=Timing.of(config)))


def play(config: Config, seed: int, commands: Callable[[Device], Iterable[Command]],
         make_device: type[Device] = Device) -> None:
    """Run commands one after the other; check every read, write and control signal of every cycle.

    ``commands(device)`` yields them lazily, so that it may prepare memory for each.
    """
    print("seed", seed)
    rng = np.random.default_rng(seed)
    device = make_device(config, rng)
    unit = simulated(config)
    dut = unit.component
    control, dim = dut.control, config.dim
    layout = vector_layout(config)
    ports = {"r0": dut.r0, "r1": dut.r1, "acc": dut.acc}
    bits = {"r0": 8 * dim, "r1": 8 * dim, "acc": 32 * dim}

    def word(port: str, row: int) -> int:
        if port == "acc":
            return int.from_bytes(device.acc[row].astype("<i4").tobytes(), "little")
        return int.from_bytes(device.spm[row].tobytes(), "little")

    async def bench(ctx: Any) -> None:
        for c in commands(device):
            expected = device.run(c)
            reads, writes, finish = trace(c, dim, config.vector_passes, config.dividers)
            assert ctx.get(control.ready), c
            ctx.set(control.command, layout.const(c))
            ctx.set(control.start, 1)
            seen = {}
            for cycle in range(finish + 2):  # the last write is in a register at the finish
                wanted = reads[cycle] if cycle < len(reads) else {}
                got = {name: ctx.get(port.row) for name, port in ports.items() if ctx.get(port.en)}
                assert got == wanted, (cycle, c)
                rescales = c["op"] == VOp.RESCALE
                write, memory = (dut.acc_w, device.acc) if rescales else (dut.w, device.spm)
                assert not ctx.get((dut.w if rescales else dut.acc_w).en), (cycle, c)
                if ctx.get(write.en):
                    row, part = writes.get(cycle, (-1, 0))
                    assert ctx.get(write.row) == row, (cycle, row, c)
                    here = slice(part * config.lanes, (part + 1) * config.lanes)
                    assert ctx.get(write.mask) == ((1 << config.lanes) - 1) << here.start
                    line = np.frombuffer(
                        ctx.get(write.data).to_bytes(len(write.data) // 8, "little"), dtype="<i4" if rescales else "u1")
                    assert line[here].tolist() == expected[row][here].tolist(), (cycle, row, c)
                    seen[cycle] = row, part
                    memory[row][here] = line[here]
                assert ctx.get(control.finish) == (cycle == finish), (cycle, finish, c)
                assert ctx.get(control.release) == (7 if cycle == finish else 0)
                assert ctx.get(control.ready) == (cycle in (0, finish + 1)), (cycle, c)
                answers = {name: word(name, row) for name, row in got.items()}
                await ctx.tick()
                if cycle == 0:
                    ctx.set(control.start, 0)
                    ctx.set(control.command, layout.from_bits(int(rng.integers(1 << 60))))
                for name, port in ports.items():  # where nothing was read: noise, or what stood there before
                    if name in answers:
                        ctx.set(port.data, answers[name])
                    elif rng.random() < 0.2:
                        ctx.set(port.data, int.from_bytes(rng.bytes(bits[name] // 8), "little"))
            assert seen == writes, c
            if rng.random() < 0.2:
                await ctx.tick().repeat(int(rng.integers(1, 12)))
                assert not ctx.get(control.finish)

    unit.run(bench, cycles=200000)
