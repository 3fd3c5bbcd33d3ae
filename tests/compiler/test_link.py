"""Draft and verify in one launch: the tokens and caches of launches apart, whatever the draft's cache lacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.place import round_up
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.link import link_step
from gemmule.compiler.programs.step_program import StepProgram
from gemmule.compiler.search.greedy import compile_greedy
from gemmule.config import Config, load_config
from gemmule.sim.result import Result
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.backends import Device
from gemmule.sw.models.bundled_models import bundled_model
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import some

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SMALL = Sizes(family="llama", hidden=16, inner=24, heads=2, kv_heads=1, head_dim=8, layers=1, vocab=67, positions=40)
LARGE = replace(SMALL, hidden=32, inner=48, heads=4, kv_heads=2, layers=2)


class Linked:
    """A draft and a target in one DRAM with random caches, and the program of both."""

    def __init__(self, config: Config, draft: Network, target: Network, rows: int, seed: int = 1) -> None:
        self.config, self.random = config, np.random.default_rng(seed)
        self.target = compile_network(target, config, rows=rows, tokens=True)
        period = 1 << 12
        self.loop = compile_greedy(draft, config, effort=1, rows=rows, base_address=round_up(self.target.size, period))
        self.step = link_step(self.loop, self.target,
                                 round_up(self.loop.base_address + self.loop.size, period))
        self.size = self.step.base_address + self.step.size
        self.filled = [(self.target, self.target.fill(target)), (self.loop, self.loop.fill(draft))]
        for program, dram in self.filled:
            program.put(dram, CACHE, self.random.integers(0, 256, program.symbols[CACHE][1], dtype=np.uint8))

    def load(self, device: Device) -> Device:
        for program, dram in self.filled:
            device.write_dram(program.base_address, dram.tobytes())
        device.write_dram(self.step.program_address, self.step.image)
        return device

    def device(self) -> Device:
        return self.load(Simulator(self.config, dram_bytes=self.size))

    def caches(self, device: Device) -> list[bytes]:
        return [program.read(device.read_dram, CACHE).tobytes() for program in (self.target, self.loop)]

    def together(self, device: Device, token: int, position: int, steps: int, before: int | None) -> tuple[
            Result, StepProgram]:
        program = self.step.caught_up if before is None else self.step
        return run(device, program, program.step(token, position, steps, before)), program

    def compare(self, token: int, position: int, steps: int, before: int | None) -> tuple[int, int]:
        """Cycles of a launch, and of launches apart; tokens and caches must be the same."""
        apart, together = self.device(), self.device()
        cycles = 0
        drafted: list[int] = []
        if before is not None:
            single = self.loop.single
            cycles += run(apart, single, single.step(Rows.chain([before, token], position - 1), 1)).cycles
            drafted += single.read_tokens(apart.read_dram, 1)
        if left := steps - len(drafted):
            pending = [token, *drafted][-1]
            cycles += run(apart, self.loop, self.loop.step(pending, position + len(drafted), left)).cycles
            drafted += self.loop.read_tokens(apart.read_dram, left)
        rows = Rows.chain([token, *drafted], position)
        cycles += run(apart, self.target, self.target.step(rows, steps + 1)).cycles
        result, program = self.together(together, token, position, steps, before)
        expected = drafted, self.target.read_tokens(apart.read_dram, steps + 1)
        assert program.read_tokens(together.read_dram, steps) == expected
        assert self.caches(together) == self.caches(apart)
        assert 0 < program.draft_cycles(result) < result.cycles
        return int(result.cycles), int(cycles)


def run(device: Device, program: Program, step: Step) -> Result:
    for address, content in step.inputs:
        device.write_dram(address, content.tobytes())
    device.load(program.launch("launch", NO_DRAM, step.registers))
    result = device.run()
    assert result.fault == 0, (result.fault, result.fault_place)
    return result


@pytest.mark.parametrize("config", some([BASE, EDGE]), ids=lambda config: config.name)
def test_the_bundled_small_pair(config: Config) -> None:
    """At both ends of the context and within; in as many cycles as apart, but for what DRAM's rows and refresh make."""
    linked = Linked(config, bundled_model("draft").network, bundled_model("target").network, 8)
    for steps, position in ((1, 1), (3, 40), (7, 100), (7, 248), (1, 254)):
        for before in (None, 33):
            together, apart = linked.compare(77, position, steps, before)
            assert together < 1.01 * apart
    linked.compare(77, 0, 7, None)


@pytest.mark.parametrize("family", some(["gpt2", "llama", "phi"]))
def test_other_networks_over_the_whole_context(family: str) -> None:
    """Positions that are learned or angles, attention whole or in blocks."""
    draft, target = (random_network(replace(sizes, family=family), 5 + i) for i, sizes in enumerate((SMALL, LARGE)))
    linked = Linked(TINY, draft, target, 4)
    most = linked.step.most
    for steps in range(1, most + 1):
        for position in (0, 1, 7, 39 - steps):
            for before in (None, 9)[:1 + (position > 0)]:
                linked.compare(11, position, steps, before)


def test_block_by_block() -> None:
    """Contexts that attention takes in blocks; the target's have more."""
    draft, target = (random_network(replace(sizes, positions=4096, layers=1), 8 + i)
                     for i, sizes in enumerate((SMALL, LARGE)))
    linked = Linked(TINY, draft, target, 4)
    for position in (0, 62, 64, 4092):
        for before in (None, 9)[:1 + (position > 0)]:
            linked.compare(11, position, 3, before)


def test_online_attention() -> None:
    """Of both, by blocks of 16 keys."""
    draft, target = (random_network(sizes, 8 + i).with_softmax(None, 16)
                     for i, sizes in enumerate((SMALL, LARGE)))
    linked = Linked(EDGE, draft, target, 4)
    for position, before in ((0, None), (15, 9), (36, 9)):
        linked.compare(11, position, 3, before)


@pytest.mark.rtl
def test_on_rtl() -> None:
    """Every byte and every cycle of launches with and without a row that the draft's cache lacks."""
    linked = Linked(TINY, random_network(SMALL, 5), random_network(LARGE, 6), 4)
    model = linked.device()
    with RtlDevice(TINY) as rtl:
        linked.load(rtl)
        for position, before in ((6, None), (20, 13)):
            (expected, program), (seen, _) = (
                linked.together(device, 11, position, 3, before) for device in (model, rtl))
            assert (difference := expected.first_difference(seen)) is None, difference
            assert program.read_tokens(rtl.read_dram, 3) == program.read_tokens(model.read_dram, 3)
            assert linked.caches(rtl) == linked.caches(model)


def test_refused() -> None:
    draft, target = random_network(SMALL, 5), random_network(LARGE, 6)
    linked = Linked(TINY, draft, target, 4)
    for program, steps, position, message in (
            (linked.step, 0, 5, "from 1 to 3 behind 1 rows or more, not 0 behind 5"),
            (linked.step, 4, 5, "from 1 to 3 behind 1 rows or more, not 4 behind 5"),
            (linked.step, 2, 0, "behind 1 rows or more, not 2 behind 0"),
            (linked.step.caught_up, 3, 37, "must be at most 40, not 37 \\+ 4")):
        with pytest.raises(CompileError, match=message):
            program.registers(position, steps)
    for program, before in ((linked.step, None), (linked.step.caught_up, 3)):
        with pytest.raises(CompileError, match="the token before must be given where its row is passed"):
            program.step(5, 7, 2, before)
    for options in ({"rows": 1, "tokens": True}, {"rows": 4}, {"rows": 2, "tokens": True, "batch": 2}):
        other = compile_network(target, TINY, **options)
        with pytest.raises(CompileError, match="must give tokens of 2 rows or more"):
            link_step(linked.loop, other, linked.step.base_address)


def test_too_many_base_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    linked = Linked(TINY, random_network(SMALL, 5), random_network(LARGE, 6), 4)
    monkeypatch.setattr("gemmule.compiler.programs.link.NUM_BASES", 28)
    with pytest.raises(CompileError, match="must use at most 28 base registers, not 3"):
        link_step(linked.loop, linked.target, linked.step.base_address)
