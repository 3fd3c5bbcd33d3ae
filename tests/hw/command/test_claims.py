"""Claims: queues of held ports per stream, and the conflict check between streams."""

import dataclasses
import random
from collections import deque

import pytest
from amaranth.hdl import Const

from gemmule.config import Config
from gemmule.hw.command.claims import Claims, StreamClaims, claim_depths, narrow, widen
from gemmule.resolve import STREAM_UNIT, STREAMS
from gemmule.timing import Timing, matrix_shape

from ..bench import rejection, run_bench

CONFIG = Config(spm_banks=2, acc_banks=1)  # few ports, many conflicts
# Bits: scratchpad reads 0 and 1, scratchpad writes 2 and 3, accumulator read 4, accumulator write 5.
PORTS = {"load.w": 0b111100, "store.r": 0b010011, "matrix.A": 0b000011, "matrix.B": 0b000011,
         "matrix.C": 0b110000, "vector.r0": 0b010011, "vector.r1": 0b000011, "vector.w": 0b101100,
         "select.r": 0b000011, "select.w": 0b001100}


def random_mask(rng: random.Random, stream: str, thin: int) -> int:
    """Ports that the stream can hold; matrix.C takes the read and the write port of a bank together."""
    mask = PORTS[stream]
    if stream == "matrix.C":
        return mask if rng.random() < 0.5 ** thin else 0
    for _ in range(thin):
        mask &= rng.getrandbits(6)
    return mask


def union(masks) -> int:
    value = 0
    for mask in masks:
        value |= mask
    return value


def test_all_streams_random() -> None:
    """Heads come, wait and go, with and without a start; whether one is free is known when it comes."""
    rng = random.Random(7)
    print("seed 7")
    dut = Claims(config=CONFIG)
    depths = claim_depths(CONFIG, Timing.of(CONFIG))
    outcomes = {"free": 0, "taken": 0, "started": 0, "dropped": 0}

    def masks() -> list[int]:
        return [random_mask(rng, name, 2) for name in STREAMS]

    async def bench(ctx):
        held = {name: deque() for name in STREAMS}
        want, following = masks(), masks()
        valid, known = [False] * 5, False
        for cycle in range(3000):
            may = []
            for u in range(5):
                own = [(s, name) for s, name in enumerate(STREAMS) if STREAM_UNIT[s] == u]
                free = all(want[s] & union(union(held[other]) for other in STREAMS if other != name) == 0
                           for s, name in own)
                if valid[u] and known:
                    assert (ctx.get(dut.free) >> u & 1) == free, (cycle, u)
                    outcomes["free" if free else "taken"] += 1
                if valid[u] and free and all(len(held[name]) < depths[name] for _, name in own):
                    may.append(u)
            issued = rng.choice(may) if may and rng.random() < 0.7 else None
            starts = issued is not None and rng.random() < 0.8
            clear = rng.random() < 0.01
            release = 0
            for s, name in enumerate(STREAMS):
                if held[name] and rng.random() < 0.3:
                    release |= 1 << s
                    held[name].popleft()
            ctx.set(dut.want, want)
            ctx.set(dut.following, following)
            ctx.set(dut.valid, sum(bit << u for u, bit in enumerate(valid)))
            ctx.set(dut.issue, 0 if issued is None else 1 << issued)
            ctx.set(dut.start, 1 << issued if starts else 0)
            ctx.set(dut.release, release)
            ctx.set(dut.clear, clear)
            if issued is not None:
                outcomes["started" if starts else "dropped"] += 1
            for s, name in enumerate(STREAMS):
                if starts and STREAM_UNIT[s] == issued:
                    held[name].append(want[s])
            if clear:
                for queue in held.values():
                    queue.clear()
            new = masks()
            for s, u in enumerate(STREAM_UNIT):
                if u == issued or not valid[u]:
                    want[s], following[s] = following[s], new[s]
            valid = [rng.random() < 0.6 if u == issued or not valid[u] else True for u in range(5)]
            known = not clear
            await ctx.tick()

    run_bench(dut, bench)
    print(outcomes)
    assert min(outcomes.values()) > 150, outcomes


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_stream_visible_next_cycle(depth: int) -> None:
    dut = StreamClaims(bits=8, depth=depth)

    async def bench(ctx):
        for i in range(depth):
            assert ctx.get(dut.held) == (1 << i) - 1
            ctx.set(dut.push, 1)
            ctx.set(dut.mask, 1 << i)
            await ctx.tick()
        ctx.set(dut.push, 0)
        ctx.set(dut.release, 1)
        for i in range(depth):  # oldest first
            assert ctx.get(dut.held) == (1 << depth) - (1 << i)
            await ctx.tick()
        ctx.set(dut.release, 0)
        assert ctx.get(dut.held) == 0

    run_bench(dut, bench)


def test_depth_is_checked() -> None:
    assert "not 0" in rejection(lambda: StreamClaims(bits=4, depth=0))


@pytest.mark.parametrize("config", [CONFIG, Config(), Config(spm_banks=1, acc_banks=1)], ids=["2, 1", "8, 4", "1, 1"])
def test_narrow_masks_keep_what_a_stream_can_hold(config: Config) -> None:
    """Every full mask comes back without the ports of other streams."""
    spm, acc = (1 << config.spm_banks) - 1, (1 << config.acc_banks) - 1
    kinds = [spm, spm << config.spm_banks, acc << 2 * config.spm_banks,
             acc << 2 * config.spm_banks + config.acc_banks]
    bits = {"load.w": config.spm_banks + 2 * config.acc_banks, "matrix.C": config.acc_banks,
            "store.r": config.spm_banks + config.acc_banks, "vector.r0": config.spm_banks + config.acc_banks,
            "vector.w": config.spm_banks + config.acc_banks}
    rng = random.Random(3)
    for name in STREAMS:
        for _ in range(20):
            held = rng.getrandbits(config.claim_bits)
            if name == "matrix.C":
                row = rng.getrandbits(config.acc_banks) << 2 * config.spm_banks
                held = row | row << config.acc_banks | held & (spm | spm << config.spm_banks)
            own = sum(kind for i, kind in enumerate(kinds) if PORTS[name] & (1, 4, 16, 32)[i])
            small = narrow(config, name, Const(held, config.claim_bits))
            assert len(small) == bits.get(name, config.spm_banks)
            assert Const.cast(widen(config, name, small)).value == held & own, name


def matrix_holds(rng: random.Random, timing: Timing, count: int) -> dict[str, int]:
    """Most entries of matrix.A, .B and .C at once: commands back to back, by docs/timing.md, section Matrix."""
    dim, preload, depth = 4, rng.choice((1, 2, 4)), timing.matrix_commands
    stream_free = issued = 0
    preload_free, last_finish, stationary = 1, 0, False
    holds: dict[str, list[tuple[int, int]]] = {"matrix.A": [], "matrix.B": [], "matrix.C": []}
    finishes: list[int] = []
    for _ in range(count):
        changed = rng.random() < 0.05
        stationary ^= changed
        reuse = not stationary and rng.random() < 0.3
        apart = not stationary and rng.random() < 0.3
        m, n, k = (rng.choice((1, 2, 4, 9)) for _ in range(3))
        tiles, slot, last, load = matrix_shape(
            dim, preload, timing.matrix_rmw, m, min(n, dim) if reuse else n, min(k, dim) if reuse else k,
            stationary, False, False, reuse, apart)
        t = max(preload_free - 1, issued + 1, last_finish + 1 if changed else 0)
        if len(finishes) >= depth:
            t = max(t, finishes[-depth] + 1)
        s = max(t + timing.matrix_first + load, stream_free)
        preload_free = s if reuse or stationary else s + (tiles - 1) * slot
        end = s + (tiles - 1) * slot + last
        stream_free, issued = end, t
        last_finish = end + timing.matrix_drain + (dim if stationary else 0)
        finishes.append(last_finish)
        for name, released in (("matrix.A", end), ("matrix.B", end if stationary else preload_free),
                               ("matrix.C", last_finish + 1)):
            holds[name].append((t, released - 1))  # pushed in t, dropped by the pulse in the cycle before
    most = {}
    for name, spans in holds.items():
        # An entry stands in the cycles t + 1 .. pulse; a push takes the place that a pulse of its cycle frees.
        most[name] = max(sum(t < other and pulse > other for t, pulse in spans[max(0, i - 20):i]) + 1
                         for i, (other, _) in enumerate(spans))
    return most


def test_depths_hold_every_claim_and_no_more() -> None:
    config = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=4, acc_kib=4)
    timing = dataclasses.replace(Timing.of(config), matrix_drain=40)  # so long that all commands are in flight
    depths = claim_depths(config, timing)
    rng = random.Random(11)
    print("seed 11")
    most = dict.fromkeys(("matrix.A", "matrix.B", "matrix.C"), 0)
    for _ in range(60):
        for name, count in matrix_holds(rng, timing, 60).items():
            most[name] = max(most[name], count)
    assert most == {name: depths[name] for name in most} == {"matrix.A": 2, "matrix.B": 2, "matrix.C": 12}
