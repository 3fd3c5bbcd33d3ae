"""Select unit: memories, rows and cycles of every operation against docs/numerics.md and docs/timing.md."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from gemmule.config import Config
from gemmule.hw.flow.lint import lint
from gemmule.hw.flow.verilog import verilog_of
from gemmule.hw.select import radix as select_radix
from gemmule.hw.select.select import Select
from gemmule.isa import ArgmaxFlag, CommitFlag, CompareFlag, ImportanceFlag, KeysFlag, ListFlag, SOp, TopKFlag
from gemmule.numerics.select import accumulate_importance, argmax_rows, top_k
from gemmule.timing import Timing

from ...thinned import some
from ..bench import Simulated, rejection

SPM_ROWS = 1024
KEY_MAX, WORD_MAX = 2**24 - 1, 2**32 - 1
Command = dict[str, int]


def device(dim: int, keys: int = 64, entries: int = 128, index_bits: int = 18) -> Config:
    return Config(name=f"dim{dim}", dim=dim, bus_bytes=2, spm_kib=64, acc_kib=64, spm_banks=2, acc_banks=2,
                  select_keys=keys, list_entries=entries, stat_rows=8, index_bits=index_bits)


def command(op: SOp, *flags: IntEnum, **fields: int) -> Command:
    base = {"m": 1, "n": 1, "k": 1, "src0": 0, "src0_stride": 0, "dst": 0, "first": 0, "aux": 0, "shift": 0,
            "number": 1}
    return base | fields | {"op": int(op), "flags": sum(1 << bit for bit in set(flags))}


def has(c: Command, bit: IntEnum) -> bool:
    return bool(c["flags"] >> bit & 1)


def reads_planes(c: Command) -> int:
    """Reads of a group: 2 with planes, 1 without, 0 when nothing is read."""
    if c["op"] in (SOp.TOP_K, SOp.COMMIT, SOp.LIST_STORE) or (
            c["op"] == SOp.KEYS and has(c, KeysFlag.FROM_IMPORTANCE)):
        return 0
    return 2 if c["op"] in (SOp.ARGMAX, SOp.KEYS) or has(c, ImportanceFlag.WIDE) else 1


def schedule(dim: int, c: Command) -> tuple[int, list[tuple[int, int]]]:
    """(finish, reads) in cycles after the issue: the table of docs/timing.md, written out."""
    groups, half = -(-c["n"] // dim), dim // 2
    rows, planes = c["m"], reads_planes(c)
    row_groups = [(i, g) for i in range(rows) for g in range(groups)]
    order = {
        SOp.ARGMAX: row_groups, SOp.COMPARE: row_groups, SOp.KEYS: [(0, g) for g in range(groups)],
        SOp.IMPORTANCE: [(i, g) for g in range(groups) for i in range(rows)], SOp.PACK: row_groups,
    }.get(SOp(c["op"]), [])
    reads = [c["src0"] + i + g * c["src0_stride"] + plane * (c["src0_stride"] // 2)
             for i, g in order for plane in range(planes)]
    timed = [(2 + step, row) for step, row in enumerate(reads)]
    if c["op"] == SOp.PACK:  # a step behind each row's groups reads nothing
        timed = [(2 + step + step // groups, row) for step, row in enumerate(reads)]
    list_rows = -(-c["n"] // half)
    if c["op"] == SOp.LIST_LOAD:
        timed = [(2 + i * half, c["src0"] + i) for i in range(list_rows)]
    match c["op"]:
        case SOp.TOP_K:
            return 2 * (groups + 4) if has(c, TopKFlag.NONZERO) else 6 * (groups + 4) + groups + 4, []
        case SOp.PACK:
            return rows * (groups + 1) + 6, timed
        case SOp.ARGMAX | SOp.COMPARE:
            return len(reads) + 9, timed
        case SOp.LIST_LOAD | SOp.LIST_STORE:
            return half * list_rows + 5, timed
        case SOp.COMMIT:
            return groups + 5, []
        case SOp.KEYS if not planes:
            return groups + 5, []
        case _:
            return len(reads) + 5, timed


class Golden:
    """The unit's memories, and every operation on whole arrays."""

    def __init__(self, config: Config) -> None:
        self.dim, self.indices = config.dim, 1 << config.index_bits
        keys, zeros = config.select_keys, lambda n: np.zeros(n, dtype=np.int64)
        self.key, self.id, self.committed, self.shadow = zeros(keys), zeros(keys), zeros(keys), zeros(keys)
        self.mask, self.list = zeros(keys), zeros(config.list_entries)
        self.best, self.best_id = zeros(config.stat_rows), zeros(config.stat_rows)
        self.predicates = [1, 0, 0, 0]

    def scramble(self, rng: np.random.Generator) -> None:
        """Random contents, of which many are near what they saturate to."""
        for name, top in (("key", KEY_MAX), ("id", self.indices - 1), ("committed", WORD_MAX), ("shadow", WORD_MAX),
                          ("list", self.indices - 1), ("best_id", self.indices - 1), ("mask", 1)):
            values = rng.integers(0, top + 1, len(getattr(self, name)))
            near = rng.random(len(values)) < 0.3
            setattr(self, name, np.where(near, top - rng.integers(0, 70000, len(values)) % (top + 1), values))
        self.best = rng.integers(-32768, 32768, len(self.best))

    def operands(self, c: Command, spm: np.ndarray) -> np.ndarray:
        """Values of a command [rows, n]: bytes, or unsigned 16 bits from two planes."""
        rows = 1 if c["op"] == SOp.KEYS else c["m"]
        groups = range(-(-c["n"] // self.dim))
        planes = [np.concatenate([spm[c["src0"] + g * c["src0_stride"] + high:][:rows] for g in groups], axis=1)
                  for high in (0, c["src0_stride"] // 2)[:reads_planes(c)]]
        return sum(plane.astype(np.int64) << 8 * p for p, plane in enumerate(planes))[:, :c["n"]]

    def run(self, c: Command, spm: np.ndarray) -> list[tuple[int, bytes]]:
        """Apply a command; returns the scratchpad rows that it writes."""
        m, n, first, dst, aux = c["m"], c["n"], c["first"], c["dst"], c["aux"]
        x = self.operands(c, spm) if reads_planes(c) and c["op"] != SOp.LIST_LOAD else np.zeros((1, 1), np.int64)
        signed = x - (x >= 32768) * 65536
        here = slice(first, first + n)
        if c["op"] == SOp.ARGMAX:
            index, value = argmax_rows(signed)
            keep = (self.best[:m] >= value) & has(c, ArgmaxFlag.CONTINUE)
            self.best[:m] = np.where(keep, self.best[:m], value)
            self.best_id[:m] = np.where(keep, self.best_id[:m], (first + index) % self.indices)
            self.list[dst:dst + m] = self.best_id[:m]
        elif c["op"] == SOp.KEYS:
            keys = (signed[0] + 32768) << 8 if reads_planes(c) else np.minimum(
                self.committed[here] >> min(c["shift"], 31), KEY_MAX)
            if not reads_planes(c):
                j = np.arange(n)
                keys = np.where((j < (aux & 255)) | (j >= n - (aux >> 8)), KEY_MAX, keys)
            self.key[dst:dst + n] = keys
            if not has(c, KeysFlag.KEEP_IDS):
                self.id[dst:dst + n] = first + np.arange(n)
        elif c["op"] == SOp.TOP_K and has(c, TopKFlag.NONZERO):
            zero = self.key[:n] == 0
            self.list[dst:dst + n] = [*self.id[:n][~zero], *self.id[:n][zero]]
            self.mask[:n] = ~zero
        elif c["op"] == SOp.TOP_K:
            kept = top_k(self.key[:n], c["k"])
            self.mask[:n] = np.isin(np.arange(n), kept)
            self.list[dst:dst + len(kept)] = self.id[kept]
            for name in ("key", "id") if not has(c, TopKFlag.KEEP) else ():
                getattr(self, name)[:len(kept)] = getattr(self, name)[kept]
        elif c["op"] == SOp.IMPORTANCE:
            self.shadow[here] = accumulate_importance(self.shadow[here], x)
        elif c["op"] == SOp.COMMIT:
            if has(c, CommitFlag.FROM_KEYS):
                self.committed[here] = self.key[here]
            elif not has(c, CommitFlag.DISCARD):
                self.committed[here] = np.minimum(self.committed[here] + self.shadow[here], WORD_MAX)
            if has(c, CommitFlag.CLEAR):
                self.committed[here] = 0
            self.shadow[here] = 0
        elif c["op"] == SOp.COMPARE:
            wide = has(c, CompareFlag.WIDE)
            limit = aux - 65536 if wide and aux >= 32768 else aux
            self.predicates[c["number"]] = int(((signed if wide else x).max() >= limit)
                                               != has(c, CompareFlag.INVERT))
        elif c["op"] == SOp.PACK:
            groups, found = -(-n // self.dim), []
            for i in range(m):
                kept = x[i][self.mask[:n] == 1].astype(np.uint8)
                line = np.zeros(groups * self.dim, dtype=np.uint8)
                line[:len(kept)] = kept
                found += [(dst + i + g * c["src0_stride"], line[g * self.dim:][:self.dim].tobytes())
                          for g in range(groups)]
            return found
        elif c["op"] == SOp.LIST_LOAD:
            words = spm[c["src0"]:].reshape(-1).view("<u2")[:n].astype(np.int64)
            high, old = has(c, ListFlag.HIGH), self.list[dst:dst + n]
            self.list[dst:dst + n] = old % 65536 + words % 4 * 65536 if high else words
        else:
            rows = np.zeros(-(-2 * n // self.dim) * self.dim // 2, dtype="<u2")
            rows[:n] = self.list[here] // 65536 if has(c, ListFlag.HIGH) else self.list[here] % 65536
            lines = rows.view(np.uint8).reshape(-1, self.dim)
            return [(dst + i, line.tobytes()) for i, line in enumerate(lines)]
        return []


@dataclass
class Trace:
    issues: list[int] = field(default_factory=list)
    finishes: list[int] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)
    writes: list[tuple[int, int, bytes]] = field(default_factory=list)
    probes: int = 0  # list entries read while a command was in work


def counted(name: str, value: int) -> int:
    """What a memory's word stands for: a sum with the bit above it counts as 0."""
    return 0 if name in ("committed", "shadow") and value >> 32 else value


def memories(dut: Select, golden: Golden):  # type: ignore[no-untyped-def]
    """(name, row of the memory, value) of everything that the unit remembers."""
    dim = golden.dim
    for e in range(len(golden.key)):
        for name, memory in (("key", dut.keys), ("id", dut.ids), ("mask", dut.pack.mask)):
            yield name, e, memory.banks[e % dim].data[e // dim], int(getattr(golden, name)[e])
        for name in ("committed", "shadow"):
            memory = getattr(dut.importance, name)
            yield name, e, memory.banks[e % dim].data[e // dim], int(getattr(golden, name)[e])
    for e in range(len(golden.list)):
        yield "list", e, dut.lists.banks[e % dim].data[e // dim], int(golden.list[e])
    for e in range(len(golden.best)):
        yield "running", e, dut.argmax.running.data[e], int(golden.best[e]) & 65535 | int(golden.best_id[e]) << 16


@lru_cache(maxsize=4)
def simulated(config: Config) -> Simulated:
    """The unit's simulator, for all runs on this configuration."""
    return Simulated(Select(config=config, timing=Timing.of(config)))


def simulate(config: Config, commands: list[Command], spm: np.ndarray, *, seed: int, scrambled: bool = True) -> Trace:
    """Run commands back to back or with gaps; memories, rows, reads, predicates and finishes are all checked."""
    unit = simulated(config)
    dut = unit.component
    golden, trace, rng = Golden(config), Trace(), random.Random(seed)
    if scrambled:
        golden.scramble(np.random.default_rng(seed))

    async def bench(ctx) -> None:  # type: ignore[no-untyped-def]
        for _, _, place, value in memories(dut, golden):
            if scrambled:
                ctx.set(place, value)
        assert ctx.get(dut.predicates) == 1
        cycle, answer, pause = 0, None, 0
        asked: dict[str, int] = {}
        before, rows, old = golden.list.copy(), [], [1, 0, 0, 0]
        while len(trace.finishes) < len(commands):
            in_work = len(trace.issues) > len(trace.finishes)
            ready = ctx.get(dut.control.ready)
            assert ready == (not in_work)
            start = not in_work and pause == 0
            pause = max(0, pause - 1)
            ctx.set(dut.control.start, start)
            if start:
                c = commands[len(trace.issues)]
                ctx.set(dut.control.command, c)
                trace.issues.append(cycle)
                before, old = golden.list.copy(), list(golden.predicates)
                rows = golden.run(c, spm)
            ctx.set(dut.spm.data, rng.getrandbits(8 * config.dim) if answer is None else int.from_bytes(
                spm[answer].tobytes(), "little"))
            answer = ctx.get(dut.spm.row) if ctx.get(dut.spm.en) else None
            if answer is not None:
                trace.reads.append((cycle, answer))
            for name in ("load_list", "store_list"):
                port = getattr(dut, name)
                if name in asked:
                    assert ctx.get(port.data) == asked.pop(name), f"seed {seed}: {name} in cycle {cycle}"
                    trace.probes += in_work
                ctx.set(port.en, ask := rng.random() < 0.7)
                ctx.set(port.entry, entry := rng.randrange(config.list_entries))
                if ask and before[entry] == golden.list[entry]:  # the command in work does not write it
                    asked[name] = int(before[entry])
            if ctx.get(dut.w.en):
                assert ctx.get(dut.w.mask) == (1 << config.dim) - 1
                trace.writes.append((cycle, ctx.get(dut.w.row), ctx.get(dut.w.data).to_bytes(config.dim, "little")))
            finish = ctx.get(dut.control.finish)
            assert ctx.get(dut.control.release) == 3 * finish
            assert [ctx.get(dut.predicates) >> i & 1 for i in range(4)] == (
                old if in_work else golden.predicates if not start else old)
            await ctx.tick()
            if finish:
                c, issue = commands[len(trace.finishes)], trace.issues[-1]
                trace.finishes.append(cycle)
                after, reads = schedule(config.dim, c)
                assert cycle == issue + after, f"seed {seed}: {c} finished after {cycle - issue}, not {after} cycles"
                assert trace.reads == [(issue + x, row) for x, row in reads], f"seed {seed}: reads of {c}"
                if c["op"] == SOp.PACK:  # a row a step, the place of a row of zeros with the columns behind it
                    assert dict(w[1:] for w in trace.writes) == dict(rows), f"seed {seed}: rows written by {c}"
                    assert [w[0] for w in trace.writes] == sorted({w[0] for w in trace.writes})
                    assert len(rows) <= len(trace.writes) <= len(rows) + c["m"]
                else:
                    assert [w[1:] for w in trace.writes] == rows, f"seed {seed}: rows written by {c}"
                    assert [w[0] for w in trace.writes] == [
                        issue + (i + 1) * (config.dim // 2) + 5 for i in range(len(rows))]
                trace.reads.clear()
                trace.writes.clear()
                for name, e, place, value in memories(dut, golden):
                    assert counted(name, ctx.get(place)) == value, f"seed {seed}: {name} {e} after {c}"
                pause = rng.choice((0, 0, 1, 5))
            cycle += 1
        assert [ctx.get(dut.predicates) >> i & 1 for i in range(4)] == golden.predicates
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert ctx.get(dut.predicates) == 1
        for name, e, place, value in memories(dut, golden):
            assert counted(name, ctx.get(place)) == value, f"seed {seed}: {name} {e} after clear"

    unit.run(bench, cycles=40000)
    return trace


def random_spm(rng: np.random.Generator, dim: int) -> np.ndarray:
    """Rows of random bytes; a part has few values, so that maxima and keys tie."""
    spm = rng.integers(0, 256, (SPM_ROWS, dim), dtype=np.uint8)
    spm[:SPM_ROWS // 2] = rng.choice(np.array([0, 127, 128, 255], dtype=np.uint8), (SPM_ROWS // 2, dim))
    return spm


def random_command(rng: random.Random, config: Config, op: SOp) -> Command:
    keys, entries, dim = config.select_keys, config.list_entries, config.dim
    n = rng.choice((1, dim, rng.randint(1, keys), keys if op == SOp.TOP_K else rng.randint(1, 3 * dim)))
    n = min(n, keys)
    m = rng.randint(1, min(config.stat_rows, 5))
    stride = 2 * rng.randint(m, m + 3)
    c = command(op, m=m, n=n, k=rng.choice((1, n, n + 3, rng.randint(1, n))), src0_stride=stride,
                src0=rng.randrange(SPM_ROWS - stride * (n // dim + 1) - n - 8), shift=rng.choice((0, 4, 8, 31, 40)),
                aux=rng.randrange(65536), number=rng.randint(1, 3), first=rng.randint(0, keys - n),
                dst=rng.randint(0, keys - n))
    flags = {
        SOp.ARGMAX: (ArgmaxFlag.CONTINUE,), SOp.KEYS: tuple(KeysFlag), SOp.TOP_K: (rng.choice(tuple(TopKFlag)),),
        SOp.IMPORTANCE: (ImportanceFlag.WIDE,),
        SOp.COMMIT: rng.choice(((CommitFlag.DISCARD, CommitFlag.CLEAR), (CommitFlag.FROM_KEYS,))),
        SOp.COMPARE: (CompareFlag.INVERT, CompareFlag.WIDE),
        SOp.LIST_LOAD: (ListFlag.HIGH,), SOp.LIST_STORE: (ListFlag.HIGH,),
    }.get(op, ())
    if config.index_bits == 16 and op in (SOp.LIST_LOAD, SOp.LIST_STORE):
        flags = ()
    c["flags"] = sum(rng.getrandbits(1) << bit for bit in flags)
    if op == SOp.ARGMAX or (op == SOp.KEYS and reads_planes(c)):
        c["first"] = rng.randint(0, (1 << config.index_bits) - n)
    if op == SOp.ARGMAX:
        c["dst"] = rng.randint(0, entries - m)
    if op == SOp.TOP_K:
        c["dst"] = rng.randint(0, entries - (n if has(c, TopKFlag.NONZERO) else min(n, c["k"])))
    if op == SOp.LIST_STORE:
        c["first"], c["dst"] = rng.randint(0, entries - n), rng.randrange(1000)
    if op == SOp.PACK:
        c["dst"] = rng.randrange(1000)
    if op == SOp.LIST_LOAD:
        c["dst"] = rng.randint(0, entries - n)
    if op == SOp.KEYS and not reads_planes(c):
        c["aux"] = rng.choice((0, rng.randint(0, 2 * dim) | rng.randint(0, 2 * dim) << 8, 65535))
    if op == SOp.COMPARE:
        c["aux"] = rng.choice((0, 128, 255, 256, 32767, 32768, 65408, rng.randrange(65536)))
    return c


@pytest.mark.parametrize(("dim", "count", "index_bits"), some([
    (2, 56, 18), (4, 66, 16), (8, 45, 18), (16, 27, 16), (4, 66, 18)], 2))
def test_random_commands(dim: int, count: int, index_bits: int) -> None:
    seed = 100 + dim
    print(f"seed {seed}")
    rng, config = random.Random(seed), device(dim, index_bits=index_bits)
    ops = [SOp(i % len(SOp)) for i in range(count)]
    rng.shuffle(ops)
    commands = [random_command(rng, config, op) for op in ops]
    trace = simulate(config, commands, random_spm(np.random.default_rng(seed), dim), seed=seed)
    assert trace.probes > 100


@pytest.mark.long
def test_widest_unit() -> None:
    config, rng = device(64), random.Random(64)
    commands = [random_command(rng, config, op) for op in (
        SOp.KEYS, SOp.TOP_K, SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMMIT, SOp.LIST_STORE, SOp.PACK)]
    simulate(config, commands, random_spm(np.random.default_rng(64), 64), seed=64)


def test_ids_of_18_bits() -> None:
    """Both halves of a list come and go; ids of maxima carry over 16 bits and wrap at 18; largest keys keep theirs."""
    config, rng = device(4), np.random.default_rng(6)
    spm = random_spm(rng, 4)
    low, high = (command(SOp.LIST_LOAD, *flags, n=19, src0=row, dst=40)
                 for row, flags in ((8, ()), (60, (ListFlag.HIGH,))))
    stores = [command(SOp.LIST_STORE, *flags, n=21, first=39, dst=500) for flags in ((), (ListFlag.HIGH,))]
    maxima = [command(SOp.ARGMAX, m=3, n=22, src0_stride=8, dst=41, first=first)
              for first in (65530, 3 * 65536 - 5, 4 * 65536 - 9)]
    keys = [command(SOp.KEYS, n=30, src0_stride=4, first=131065), command(SOp.TOP_K, TopKFlag.KEEP, n=30, k=5, dst=80),
            command(SOp.TOP_K, n=30, k=9, dst=44)]
    commands = [low, high, *stores, high, *stores, low, *stores]
    for change in (*maxima, keys):
        commands += [*(change if isinstance(change, list) else [change]), *stores]
    simulate(config, commands, spm, seed=6)


@pytest.mark.parametrize("kind", ["equal", "largest", "digit", "one"])
def test_top_k_directed(kind: str) -> None:
    """All equal; all the largest key; a single digit that decides; a single key; every k, back to back."""
    dim, n = 4, 1 if kind == "one" else 22
    config, spm = device(dim), np.zeros((SPM_ROWS, 4), dtype=np.uint8)
    high, low = {"equal": (0, 7), "largest": (127, 255), "digit": (128, 0), "one": (3, 3)}[kind]
    spm[0::2], spm[1::2] = low, high
    if kind == "digit":
        spm[6, 2] = 16  # column 14
    keys = command(SOp.KEYS, n=n, src0_stride=2, first=300)
    ks = (1,) if n == 1 else (1, 2, 21, 22, 40, 65535)
    commands = [c for k in ks for c in (keys, command(SOp.TOP_K, n=n, k=k, dst=3))]
    simulate(config, commands, spm, seed=1)


def test_full_size_takes_408_and_68_cycles() -> None:
    config, rng = device(16, 1024, 2048), np.random.default_rng(3)
    spm = random_spm(rng, 16)
    commands = [command(SOp.KEYS, n=1024, src0=0, src0_stride=4), command(SOp.TOP_K, n=1024, k=300, dst=1000)]
    trace = simulate(config, commands, spm, seed=3)
    keys, select = (f - t for t, f in zip(trace.issues, trace.finishes))
    assert (keys, select) == (128 + 5, 408 + 68)


def test_power_up_and_running_maximum_across_commands() -> None:
    """All memories begin with 0; a vocabulary in three pieces gives the first of the largest values."""
    config, spm = device(8), random_spm(np.random.default_rng(5), 8)
    pieces = [command(SOp.ARGMAX, *([ArgmaxFlag.CONTINUE] if i else []), m=5, n=19, first=65000 + 19 * i,
                      src0=40 * i, src0_stride=10, dst=9 * i) for i in range(3)]
    start = [command(SOp.TOP_K, n=9, k=4), command(SOp.ARGMAX, ArgmaxFlag.CONTINUE, m=2, n=3, src0_stride=4),
             command(SOp.KEYS, KeysFlag.FROM_IMPORTANCE, n=20, first=7, dst=30)]
    simulate(config, start + pieces, spm, seed=5, scrambled=False)


@pytest.mark.parametrize("fault", some(["k - 1 survivors", "k + 1 survivors"]))
def test_bench_catches_a_planted_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = select_radix.wanted
    step = {"k - 1 survivors": -1, "k + 1 survivors": 1}[fault]
    commands = [command(SOp.TOP_K, n=21, k=k) for k in (5, 30)]
    spm = np.zeros((SPM_ROWS, 4), dtype=np.uint8)
    simulate(device(4), commands, spm, seed=7)
    monkeypatch.setattr(select_radix, "wanted", lambda n, k: right(n, k) + step)
    simulated.cache_clear()
    with pytest.raises(AssertionError, match="seed 7"):
        simulate(device(4), commands, spm, seed=7)
    simulated.cache_clear()  # that one has the fault


@pytest.mark.parametrize(("dim", "index_bits"), some([(2, 18), (8, 16), (8, 18)]))
def test_verilog_is_clean(dim: int, index_bits: int, tmp_path: Path) -> None:
    config = device(dim, index_bits=index_bits)
    made = verilog_of(Select(config=config, timing=Timing.of(config)), "select")
    path = tmp_path / f"select_{config.name}.sv"
    path.write_text(made.text)
    assert made.ports["predicates"] == {"direction": "output", "width": 4}
    lint(path, "select")


def test_wrong_latency_is_refused() -> None:
    config = device(4)
    message = rejection(lambda: Select(config=config, timing=Timing(select_write=6)))
    assert message == "select_write must be 5, as built, not 6"


@pytest.mark.parametrize(("dim", "n", "share"), some([
    (4, 30, 0.3), (4, 16, 0.0), (4, 33, 1.0), (8, 64, 0.1), (16, 5, 0.5), (8, 21, 0.6)], 4))
def test_columns_that_are_not_zero(dim: int, n: int, share: float) -> None:
    """Importance marks the columns of which a row is not 0; they are listed, and packed side by side."""
    rng, m, stride = np.random.default_rng(7), 3, 8
    spm = random_spm(rng, dim)
    used = rng.random(-(-n // dim) * dim) < share
    for group in range(-(-n // dim)):
        rows = rng.integers(0, 256, (m, dim), dtype=np.uint8)
        spm[8 + group * stride:][:m] = np.where(used[group * dim:][:dim], rows, 0)
    to = command(SOp.PACK, m=m, n=n, src0=8, src0_stride=stride, dst=512)
    simulate(device(dim), [
        command(SOp.COMMIT, CommitFlag.CLEAR, n=n), command(SOp.IMPORTANCE, m=m, n=n, src0=8, src0_stride=stride),
        command(SOp.COMMIT, n=n), command(SOp.KEYS, KeysFlag.FROM_IMPORTANCE, n=n),
        command(SOp.TOP_K, TopKFlag.NONZERO, n=n, k=1, dst=3), to, to | {"n": max(1, n - 3)},
        command(SOp.TOP_K, n=n, k=1 + n // 3, dst=3), to | {"dst": 300},
    ], spm, seed=7)


def test_cascade() -> None:
    """Importance goes on through a choice: kept keys become importance again, and their ids stay."""
    dim, n, k = 4, 40, 23
    spm = random_spm(np.random.default_rng(8), dim)
    add = command(SOp.IMPORTANCE, ImportanceFlag.WIDE, m=2, src0=4, src0_stride=4)
    keys = command(SOp.KEYS, KeysFlag.FROM_IMPORTANCE, first=0)
    simulate(device(dim), [
        command(SOp.COMMIT, CommitFlag.CLEAR, n=n), add | {"n": n}, command(SOp.COMMIT, n=n), keys | {"n": n},
        command(SOp.TOP_K, n=n, k=k, dst=0), command(SOp.COMMIT, CommitFlag.FROM_KEYS, n=k), add | {"n": k},
        command(SOp.COMMIT, n=k), command(SOp.KEYS, KeysFlag.FROM_IMPORTANCE, KeysFlag.KEEP_IDS, n=k, aux=1 | 2 << 8),
        command(SOp.TOP_K, n=k, k=9, dst=50)], spm, seed=8)
