"""The `base` device as RTL: the main job token for token and cycle for cycle, and random programs."""

import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.search.greedy import compile_greedy
from gemmule.config import load_config
from gemmule.sim.fuzz.run import fuzz
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.session import Session
from gemmule.sw.models.bundled_models import bundled_model, encode
from gemmule.sw.workloads.programs import product
from tests.compiler.encoder_bench import EncoderBench, random_rows
from tests.compiler.integer_encoders import EncoderSizes, random_encoder
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.compiler.test_greedy import filled, looped

pytestmark = [pytest.mark.rtl, pytest.mark.slow, pytest.mark.long]  # its simulator takes minutes to build
BASE = load_config("base")


@pytest.mark.parametrize("asked", [{"draft": 2}, {"draft": 4, "ar": 2}])
def test_decoding_has_equal_tokens_and_equal_cycles(asked: dict[str, int]) -> None:
    prompt = encode("class Stack:\n")
    with Session(BASE, "rtl") as rtl, Session(BASE) as model:
        for method, tokens in asked.items():
            expected = model.generate(method, prompt, tokens)
            seen = rtl.generate(method, prompt, tokens)
            assert seen.tokens == expected.tokens
            assert vars(seen.ledger) == vars(expected.ledger)


def test_a_launch_a_step_has_equal_tokens_and_equal_cycles() -> None:
    """Draft and verify in one launch; the second one also passes a row that the draft's cache lacks."""
    prompt = encode("def __init__(self")
    with Session(BASE, "rtl", launch="step") as rtl, Session(BASE, launch="step") as model:
        expected, seen = (session.generate("draft", prompt, 4, 1) for session in (model, rtl))
        assert expected.steps == [(1, 1), (1, 1)]
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

    network = random_network(Sizes(family="llama", hidden=64, layers=1, head_dim=32, positions=4224), 5)
    program = compile_network(network, BASE, rows=2)
    for context in (0, 1, 63, 64, 65, 333, 4096):
        with RtlDevice(BASE) as rtl:
            bench = Bench(program, network, rtl)
            if context:
                bench.fill_cache(context, context)
            bench.chain([7, 8])


def test_an_encoder_layer_and_its_ends() -> None:
    """A whole layer of BERT-base at 32: embedding, norms, attention, MLP, weights of full size."""
    network = random_encoder(
        EncoderSizes(hidden=768, inner=3072, heads=12, layers=1, vocab=500, positions=32), 3)
    with RtlDevice(BASE) as rtl:
        bench = EncoderBench(compile_encoder(network, BASE, sequence=32), network, rtl)
        cycles = bench.run(random_rows(network, 32))
    # All products at the mesh's peak, and a start and an end that no other layer hides.
    assert 890_880 < cycles < 1.09 * 890_880


@pytest.mark.parametrize(("programs", "seed"), [(2, 500), (4, 502)])
def test_random_programs(programs: int, seed: int) -> None:
    summary = fuzz(BASE, programs=programs, seed=seed, enforce=False)
    assert summary.failures == []
