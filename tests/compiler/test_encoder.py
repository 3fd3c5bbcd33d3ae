"""Compiled encoders against the integer interpreter, for every length from one program, near the mesh's peak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.ir import Activation, Cache, Form, IntegerInterpreter, Rows, Softmax
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.programs.encoder_program import EncoderProgram
from gemmule.compiler.quantize.activation import with_activation
from gemmule.config import Config, load_config
from gemmule.isa import COp, Unit, VOp, encode_program
from gemmule.operations import CONTROL
from gemmule.sim.result import Result
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from tests.compiler.encoder_bench import EncoderBench, random_rows
from tests.compiler.integer_encoders import EncoderSizes, random_encoder
from tests.compiler.integer_networks import scaled
from tests.thinned import thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))


def _changed(preset: str, **changes: int) -> Config:
    return Config(**(load_config(preset).model_dump() | {"name": "changed"} | changes))


@pytest.mark.parametrize(("config", "sizes", "lengths"), [
    (TINY, EncoderSizes(layers=3, labels=7), (1, 3, 4, 5, 16, 17, 33, 40)),
    (TINY, EncoderSizes(layers=1), (1,)),
    (TINY, EncoderSizes(layers=1, vocab=200_000), (1, 5)),  # ids in two planes
    (TINY, EncoderSizes(hidden=72, inner=100, positions=64, shared=False), (1, 8, 17, 40)),  # a block a turn
    (TINY, EncoderSizes(bits=4), (1, 7)),
    (_changed("tiny", stat_contexts=1, acc_banks=1, spm_banks=1), EncoderSizes(), (2, 9)),
    (EDGE, EncoderSizes(hidden=36, inner=70, labels=5, positions=70), (1, 7, 8, 32, 33, 64, 65, 70)),
    (BASE, EncoderSizes(hidden=48, heads=2, inner=100, labels=3, positions=150), (1, 15, 16, 17, 64, 65, 128, 150)),
    (BASE, EncoderSizes(hidden=60, inner=100, layers=3, shared=False), (1, 32, 33)),
])
def test_every_length_equals_the_interpreter(config: Config, sizes: EncoderSizes, lengths: tuple[int, ...]) -> None:
    """Heads of whole and of broken groups, blocks of rows whole, begun and missing, hidden rows and logits."""
    network = random_encoder(sizes, 1)
    bench = EncoderBench(compile_encoder(network, config, sequence=max(lengths), base_address=1024), network)
    cycles = [bench.run(random_rows(network, length)) for length in lengths]
    assert cycles == sorted(cycles)


@pytest.mark.parametrize(("softmax", "standard"), [
    (None, True), (Softmax.IBERT, False), (Softmax.SOFTERMAX, True)])
def test_other_softmaxes_and_the_standard_way(softmax: Softmax | None, standard: bool) -> None:
    """Through DRAM the same numbers, in more cycles; another exponential gives others in as many."""
    plain = random_encoder(EncoderSizes(labels=3), 1)
    network, rows = plain.with_softmax(softmax), random_rows(plain, 21)
    bench = EncoderBench(compile_encoder(network, TINY, sequence=33, standard=standard), network)
    cycles = [bench.run(random_rows(network, length)) for length in (1, 5, 21, 33)]
    before = EncoderBench(compile_encoder(plain, TINY, sequence=33), plain)
    assert (before.run(rows) < cycles[2]) if standard else (before.run(rows) == cycles[2])
    same = np.array_equal(*(IntegerInterpreter(one).forward(rows, Cache(one.graph)) for one in (plain, network)))
    assert same == (softmax is None)


def test_without_fusion_the_same_bytes() -> None:
    """In more cycles, at every length."""
    network = random_encoder(EncoderSizes(labels=3), 1)
    cycles = []
    for fused in (True, False):
        bench = EncoderBench(compile_encoder(network, TINY, sequence=33, fused=fused), network)
        cycles.append([bench.run(random_rows(network, length)) for length in (1, 5, 21, 33)])
    assert all(apart > 1.2 * fused for fused, apart in zip(*cycles, strict=True))


def test_what_moves_without_fusion() -> None:
    """Sums of every product, inner rows and the residual, of whole column groups, out and back."""
    network = random_encoder(EncoderSizes(layers=1), 1)
    stored = [_timed(compile_encoder(network, TINY, sequence=20, fused=fused), 20).dram_bytes["store"]
              for fused in (True, False)]
    assert stored[1] - stored[0] == 20 * (4 * (3 * 24 + 24 + 40 + 24) + 40 + 3 * 2 * 24)


@pytest.mark.parametrize("form", Form)
def test_other_activations(form: Form) -> None:
    """Of the MLP, and a table of words also of the pooler, whose tanh is none for the polynomial."""
    plain = scaled(random_encoder(EncoderSizes(labels=3), 1))
    network = with_activation(plain, form)
    forms = [node.form for node in network.graph.nodes if isinstance(node, Activation)]
    assert forms == [form, form, form if form is Form.WORD else None]
    bench = EncoderBench(compile_encoder(network, TINY, sequence=33), network)
    for length in (1, 5, 21, 33):
        bench.run(random_rows(network, length))


@pytest.mark.parametrize(("config", "sizes", "block", "lengths"), [
    (TINY, EncoderSizes(labels=3), 8, (1, 8, 9, 16, 17, 40)),
    (_changed("tiny", stat_contexts=1), EncoderSizes(layers=1), 4, (2, 4, 5, 13)),
    (BASE, EncoderSizes(hidden=48, heads=2, inner=100, positions=150), 32, (1, 33, 64, 65, 150)),
])
def test_online_attention_equals_the_interpreter(config: Config, sizes: EncoderSizes, block: int,
                                                 lengths: tuple[int, ...]) -> None:
    """Blocks of keys whole, begun and missing, also with Softermax's exponential; not the exact way's numbers."""
    plain = random_encoder(sizes, 1)
    for softmax in (None, Softmax.SOFTERMAX):
        network = plain.with_softmax(softmax, block)
        bench = EncoderBench(compile_encoder(network, config, sequence=max(lengths)), network)
        for length in lengths:
            bench.run(random_rows(network, length))
    rows = random_rows(plain, max(lengths))
    assert not np.array_equal(*(IntegerInterpreter(one).forward(rows, Cache(one.graph))
                                for one in (plain, plain.with_softmax(None, block))))


@pytest.mark.parametrize(("block", "standard"), [(6, False), (2, False), (8, True)])
def test_refuses_blocks(block: int, standard: bool) -> None:
    network = random_encoder(EncoderSizes(), 1).with_softmax(None, block)
    with pytest.raises(CompileError, match=f"a power of two and a multiple of 4, and no standard way, not {block}"):
        compile_encoder(network, TINY, sequence=9, standard=standard)


def test_the_standard_way_moves_what_it_says() -> None:
    """Scores and probabilities once out and once back, as whole column groups, beside what the device's way moves."""
    network = random_encoder(EncoderSizes(layers=1), 1)
    out, back = np.array([
        [_timed(compile_encoder(network, TINY, sequence=20, standard=standard), 20).dram_bytes[kind]
         for kind in ("store", "load")] for standard in (True, False)])[[0, 1]]
    assert (out - back).tolist() == [3 * 20 * 20 * 5] * 2  # heads, rows, columns, four bytes and one


def test_a_device_without_other_exponentials_refuses_them() -> None:
    network = random_encoder(EncoderSizes(), 1).with_softmax(Softmax.IBERT)
    with pytest.raises(CompileError, match="softmax ibert needs a device with comparison_modes, not edge: use exact"):
        compile_encoder(network, EDGE, sequence=4)


@pytest.mark.rtl
def test_the_rtl_gives_the_same_bytes_in_the_same_cycles() -> None:
    network = random_encoder(EncoderSizes(labels=3), 2)
    program = compile_encoder(network, TINY, sequence=21)
    with RtlDevice(TINY) as rtl:
        bench = EncoderBench(program, network, rtl)
        for length in (1, 4, 21):
            bench.run(random_rows(network, length))


@pytest.mark.rtl
@pytest.mark.parametrize(("config", "way"), thinned([TINY, EDGE], ["standard", "online"]))
def test_other_ways_of_attention_on_rtl(config: Config, way: str) -> None:
    """Scores through DRAM, or by blocks of keys whole, begun and missing: the same bytes in the same cycles."""
    network = random_encoder(EncoderSizes(labels=3), 2).with_softmax(None, 8 if way == "online" else None)
    program = compile_encoder(network, config, sequence=21, standard=way == "standard")
    with RtlDevice(config) as rtl:
        bench = EncoderBench(program, network, rtl)
        for length in (1, 8, 13, 21):
            bench.run(random_rows(network, length))


def test_leaving_out_a_rescale_shows() -> None:
    """A mutant: without the shifts that follow a rise of the maximum the numbers are others."""
    network = random_encoder(EncoderSizes(layers=1), 2).with_softmax(None, 4)
    program = compile_encoder(network, TINY, sequence=21)
    rows = random_rows(network, 21)
    EncoderBench(program, network).run(rows)
    bare = tuple(replace(command, fields=dict(command.fields) | {"m_cap": 0})
                 if command.unit is Unit.VECTOR and command.op == VOp.RESCALE else command
                 for command in program.commands)
    assert bare != program.commands
    with pytest.raises(AssertionError):
        EncoderBench(replace(program, commands=bare, image=encode_program(bare)), network).run(rows)


def test_equal_layers_are_one_body() -> None:
    """Layers that differ in weights and scalings cost no commands; the registers bring the scalings."""
    counts = [len(compile_encoder(random_encoder(EncoderSizes(layers=layers), 3), TINY, sequence=9).commands)
              for layers in (2, 5)]
    assert counts[1] - counts[0] <= 3 * (2 * 2 * 3 // 5 + 1)  # words of three more layers


def _timed(program: EncoderProgram, rows: int) -> Result:
    device = Simulator(program.config, dram_bytes=1)
    device.load(program.launch("pass", NO_DRAM, program.registers(rows)))
    return device.run(timing_only=True, indices=program.gathered(Rows.chain([1] * rows)))


def _spans(program: EncoderProgram, result: Result) -> dict[str, int]:
    """Cycles from the first issue to the last finish on the mesh of a part of the only layer."""
    parts = {"key": "heads", "query": "heads", "value": "heads", "attention": "attention"}
    found: dict[str, list[int]] = {}
    for place, unit, issue, finish in zip(result.places, result.units, result.issue, result.finish, strict=True):
        if unit == Unit.MATRIX:
            name = program.commands[place].note.partition(":")[0].split(".")[1]
            found.setdefault(parts.get(name, name), []).extend((int(issue), int(finish)))
    return {name: max(edges) - min(edges) for name, edges in found.items()}


def test_bert_base_keeps_the_mesh_busy() -> None:
    """A layer of BERT-base at 128: what the whole of 12 layers reaches, the benchmark shows."""
    sizes = EncoderSizes(hidden=768, inner=3072, heads=12, layers=1, vocab=500, positions=128)
    program = compile_encoder(random_encoder(sizes, 0, weights=False), BASE, sequence=128)
    result = _timed(program, 128)
    spans = _spans(program, result)
    peak = BASE.dim ** 2
    assert 128 * 3 * 768 * 768 / peak / spans["heads"] > 0.99
    assert 2 * 128 * 128 * 768 / peak / spans["attention"] > 0.99
    # Without the embedding, which comes once.
    first = min(int(issue) for issue, unit in zip(result.issue, result.units, strict=True) if unit == Unit.MATRIX)
    assert 128 * (4 * 768 * 768 + 2 * 768 * 3072 + 2 * 128 * 768) / peak / (result.cycles - first) > 0.985
    # Weights stream once for 32 rows.
    weights = 4 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert weights < result.dram_bytes["load"] < 1.15 * weights


def test_a_program_takes_one_sequence_of_known_tokens() -> None:
    network = random_encoder(EncoderSizes(layers=1), 1)
    program = compile_encoder(network, TINY, sequence=6)
    for rows, message in (
            (Rows.chain([1] * 7), "1 to 6 rows, not 7"), (Rows.ragged([[1], [2]], [0, 0]), "rows of one sequence"),
            (Rows.chain([61]), "tokens must be from 0 to 60, not 61"),
            (Rows.chain([1]).typed([2]), "token types must be from 0 to 1, not 2")):
        with pytest.raises(CompileError, match=message):
            program.step(rows)
    for sequence in (0, 41):
        with pytest.raises(CompileError, match=f"must be from 1 to 40, not {sequence}"):
            compile_encoder(network, TINY, sequence=sequence)
    with pytest.raises(CompileError, match="must fit"):
        compile_encoder(random_encoder(EncoderSizes(layers=1, hidden=384, inner=8, positions=2), 1), TINY, sequence=2)
    with pytest.raises(CompileError, match="accumulator rows"):
        compile_encoder(random_encoder(EncoderSizes(positions=600), 1), TINY, sequence=600)


def test_unread_rows_do_not_matter() -> None:
    """What a longer sequence left in DRAM and on the device changes nothing."""
    network = random_encoder(EncoderSizes(), 4)
    bench = EncoderBench(compile_encoder(network, TINY, sequence=20), network)
    cycles = bench.run(random_rows(network, 5))
    bench.run(random_rows(network, 20))
    assert bench.run(random_rows(network, 5)) == cycles
    bodies = [c for c in bench.program.commands if c.unit == CONTROL and c.op == COp.REPEAT]
    assert len(bodies) >= 2
    assert np.all([c.fields["times_cap"] > 1 for c in bodies])
