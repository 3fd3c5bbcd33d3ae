"""The `base` device as RTL: the main job token for token and cycle for cycle, and random programs."""

import pytest

from gemmule.compiler.greedy import compile_greedy
from gemmule.config import load_config
from gemmule.sim.fuzz.run import fuzz
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sw.programs import product
from gemmule.sw.session import Session
from gemmule.sw.text import bundled_model, encode
from tests.compiler.test_greedy import filled, looped
from tests.compiler.test_ragged_attention import check_on_rtl

pytestmark = [pytest.mark.rtl, pytest.mark.slow]
BASE = load_config("base")


def test_decoding_has_equal_tokens_and_equal_cycles() -> None:
    prompt = encode("class Stack:\n")
    with Session(BASE, "rtl") as rtl, Session(BASE) as model:
        for method, tokens in (("draft", 4), ("ar", 2)):
            expected = model.generate(method, prompt, tokens)
            seen = rtl.generate(method, prompt, tokens)
            assert seen.tokens == expected.tokens
            assert vars(seen.ledger) == vars(expected.ledger)


def test_product() -> None:
    work = product(BASE, 33, 100, 70, seed=3)
    with RtlDevice(BASE) as rtl:
        report = cosim(work.case, Simulator(BASE, dram_bytes=len(work.case.dram)), rtl)
        assert report.ok, report.text
        assert (work.program.read_output(rtl.read_dram) == work.expected).all()


def test_contexts_and_a_greedy_loop() -> None:
    """Programs of control commands: any context from one program, eight tokens of the draft in one launch."""
    network = bundled_model("draft").network
    loop = compile_greedy(network, BASE)
    model = Simulator(BASE, dram_bytes=1 << 22)
    with RtlDevice(BASE) as rtl:
        report = cosim(looped(loop, filled(loop, network, 2), 77, 40, 8), model, rtl)
        assert report.ok, report.text
        assert loop.read_tokens(rtl.read_dram, 8) == loop.read_tokens(model.read_dram, 8)
        check_on_rtl(BASE, rtl, (0, 1, 63, 64, 65, 333, 4096))


def test_random_programs() -> None:
    summary = fuzz(BASE, programs=6, seed=500, enforce=False)
    assert summary.failures == []
