"""Vocabularies of more than 65,536 tokens: every program gives the integer interpreter's ids."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.compiler.passes.schedule import schedule_greedy
from gemmule.compiler.place import round_up
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.programs.link import link_step
from gemmule.compiler.search import greedy as loops
from gemmule.compiler.search.greedy import compile_greedy
from gemmule.config import Dram, load_config
from gemmule.isa import ListFlag, SOp, Unit
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.backends import Device
from tests.compiler.general_bench import GeneralBench
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import some

EDGE, TINY = (load_config(name) for name in ("edge", "tiny"))
BASE = load_config("base").model_copy(update={"name": "one-dram-bank", "dram": Dram(banks=1)})
"""A loop's image is tried from every bank on: one is quickly tried."""
LIMIT = 1 << 16
"""Ids of 16 bits."""
SIZES = Sizes(family="llama", hidden=32, inner=48, heads=2, kv_heads=1, head_dim=16, layers=2, vocab=70_000,
              positions=12)
SMALL = replace(SIZES, hidden=8, inner=8, head_dim=4, layers=1)
SEED = 39


def network_of(sizes: Sizes, seed: int = SEED, quarters: int = 3) -> Network:
    """A random network; logits of tokens of 16 bits are smaller than others by some quarters, so that these win too."""
    network = random_network(sizes, seed)
    mult = network.weights["logits.mult"].copy()
    mult[:LIMIT] = mult[:LIMIT].astype(np.int64) * quarters // 4
    return Network(network.graph, dict(network.weights) | {"logits.mult": mult})


@pytest.fixture(autouse=True)
def few_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loop's orders two are enough here: each of the many loads of such a head makes one."""
    monkeypatch.setattr(loops, "schedule_greedy", lambda lowered, config: islice(schedule_greedy(lowered, config), 2))


def greedy(network: Network, token: int, steps: int) -> list[int]:
    """The interpreter's text behind a token."""
    cache, tokens = Cache(network.graph), [token]
    for i in range(steps):
        tokens.append(int(IntegerInterpreter(network).forward(Rows.chain(tokens[-1:], i), cache)[0].argmax()))
    return tokens[1:]


def run(device: Device, program: Program, step: Step) -> int:
    for address, content in step.inputs:
        device.write_dram(address, content.tobytes())
    device.load(program.launch("launch", NO_DRAM, step.registers))
    result = device.run()
    assert result.fault == 0, (result.fault, result.fault_place)
    return int(result.cycles)


@pytest.mark.parametrize("vocab", some([70_000, 200_000]))
def test_greedy_text(vocab: int) -> None:
    """In one launch, and in a launch a token."""
    network, steps = network_of(replace(SIZES, vocab=vocab)), 6
    loop = compile_greedy(network, BASE, effort=1, rows=2)
    expected = greedy(network, vocab - 1, steps)
    assert max(expected) >= LIMIT > min(expected)
    devices = [Simulator(BASE, dram_bytes=loop.base_address + loop.size) for _ in range(2)]
    for device in devices:
        device.write_dram(loop.base_address, loop.fill(network))
    run(devices[0], loop, loop.step(vocab - 1, 0, steps))
    assert loop.read_tokens(devices[0].read_dram, steps) == expected
    tokens = [vocab - 1]
    for i in range(steps):
        run(devices[1], loop.single, loop.single.step(Rows.chain(tokens[-1:], i), 1))
        tokens += loop.single.read_tokens(devices[1].read_dram, 1)
    assert tokens[1:] == expected


@pytest.mark.long
def test_draft_and_target_in_one_launch() -> None:
    """Drafts go to the target's tokens in both planes; with the row that the draft's cache lacks, and without."""
    sizes = replace(SIZES, vocab=140_000)
    draft, target = network_of(sizes, quarters=1), network_of(replace(sizes, layers=1, hidden=48), 3)
    verify = compile_network(target, BASE, rows=4, tokens=True)
    loop = compile_greedy(draft, BASE, effort=1, rows=4, base_address=round_up(verify.size, 1 << 12))
    step = link_step(loop, verify, round_up(loop.base_address + loop.size, 1 << 12))
    pending, before = 139_999, 66_000
    for lacking, program in ((False, step.caught_up), (True, step)):
        device = Simulator(BASE, dram_bytes=step.base_address + step.size)
        for part, content in ((verify, verify.fill(target)), (loop, loop.fill(draft))):
            device.write_dram(part.base_address, content)
        device.write_dram(step.program_address, step.image)
        first = 1 if lacking else 0
        run(device, program, program.step(pending, first, 3, before if lacking else None))
        drafted, verified = program.read_tokens(device.read_dram, 3)
        tokens, cache = [before, pending] if lacking else [pending], Cache(draft.graph)
        logits = IntegerInterpreter(draft).forward(Rows.chain(tokens), cache)
        expected = [int(logits[-1].argmax())]
        for i in range(2):
            row = Rows.chain(expected[-1:], len(tokens) + i)
            expected.append(int(IntegerInterpreter(draft).forward(row, cache)[0].argmax()))
        assert drafted == expected
        if not lacking:  # the target has no row before the pending token's
            logits = IntegerInterpreter(target).forward(Rows.chain([pending, *drafted]), Cache(target.graph))
            assert verified == logits.argmax(axis=1).tolist()
        assert max(drafted) >= LIMIT


@pytest.mark.parametrize("vocab", some([65_537, 140_000]))
def test_every_answer(vocab: int) -> None:
    """Largest logits and sums of exponents count columns beyond what a length register holds."""
    network, rows = network_of(replace(SIZES, vocab=vocab)), 2
    bench = GeneralBench(compile_network(network, BASE, rows=rows, general=True), network)
    for wanted in (Answers(rows=rows), Answers(rows=1, top=True), Answers(rows=1, scale=(40000, 13)),
                   Answers(rows=rows, logits=True, top=True, scale=(65535, 30), hidden=rows)):
        bench.chain([vocab - 1, LIMIT], (0, SIZES.layers), wanted)


def test_hidden_rows_behind_the_last_token_of_16_bits() -> None:
    """The plain program has tokens of 16 bits, the general one's rows behind the table need more."""
    network = network_of(replace(SIZES, vocab=LIMIT, layers=1))
    program = compile_network(network, BASE, rows=2, general=True)
    assert not any(ListFlag.HIGH in command.flags for command in program.commands if command.op == SOp.LIST_LOAD
                   and command.unit is Unit.SELECT)
    bench = GeneralBench(program, network)
    bench.chain([LIMIT - 1, 5], (0, 1), Answers(rows=2, hidden=0))
    rows = replace(Rows.chain([0, 0]), hidden=np.array([0, 1]))
    bench.forward(rows, (1, 0), Answers(rows=2, logits=True))


def test_a_batch() -> None:
    """Ids of every sequence come in both planes."""
    network = network_of(SIZES)
    program = compile_network(network, BASE, rows=2, batch=3, tokens=True)
    device = Simulator(BASE, dram_bytes=program.size)
    device.write_dram(0, program.fill(network))
    rows = Rows.ragged([[69_000, 7], [66_666], [3]], [0] * 3)
    run(device, program, program.step(rows, 4))
    expected = []
    for i in range(3):
        own = rows.tokens[rows.sequences == i].tolist()
        expected += IntegerInterpreter(network).forward(Rows.chain(own), Cache(network.graph)).argmax(axis=1).tolist()
    assert program.tokens_of(device.read_dram, rows, 4) == expected


def test_a_device_of_16_bits() -> None:
    """It takes 65,536 tokens, and says what a larger vocabulary needs."""
    for vocab in (LIMIT + 1, 4 * LIMIT):
        network = network_of(replace(SMALL, vocab=vocab))
        message = (rf"tokens .* must be at most 65,536 on edge \(index_bits 16\), not {vocab:,}: use a smaller "
                   "vocabulary or take a device with index_bits: 18")
        with pytest.raises(CompileError, match=message):
            compile_network(network, EDGE, rows=2)
    assert compile_network(network_of(replace(SMALL, vocab=LIMIT)), EDGE, rows=2).size


@pytest.mark.rtl
@pytest.mark.long
def test_rtl() -> None:
    """A launch of two steps: same tokens, same cycles."""
    network = network_of(SMALL)
    loop = compile_greedy(network, TINY, effort=1)
    expected, found = greedy(network, 69_998, 2), []
    with RtlDevice(TINY, dram_bytes=round_up(loop.size, 1 << 12)) as rtl:
        for device in (rtl, Simulator(TINY, dram_bytes=loop.size)):
            device.write_dram(0, loop.fill(network).tobytes())
            found.append(run(device, loop, loop.step(69_998, 0, 2)))
            assert loop.read_tokens(device.read_dram, 2) == expected
    assert max(expected) >= LIMIT
    assert found[0] == found[1]
