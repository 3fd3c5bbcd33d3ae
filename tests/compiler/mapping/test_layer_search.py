"""An encoder's layer by branch and bound: bounds below every program, the optimum of exhaustion, the right answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.mapping import branch_and_bound, exhaustive
from gemmule.compiler.mapping.mapper import Mapper
from gemmule.compiler.passes.encoder.map import EncoderMapping
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.search.layer import (
    explained,
    layer_bound,
    layer_cost,
    layer_mapping,
    layer_spaces,
    phase_cost,
    search_layer,
)
from gemmule.config import Config, load_config
from tests.compiler.encoder_bench import EncoderBench, random_rows
from tests.compiler.integer_encoders import EncoderSizes, random_encoder

TINY, EDGE = load_config("tiny"), load_config("edge")
CASES = [(TINY, EncoderSizes(layers=1, hidden=8, inner=16, heads=2), 9),
         (EDGE, EncoderSizes(layers=1, hidden=16, inner=24, heads=2, bits=4, group=8), 20)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path))


@pytest.mark.parametrize(("config", "sizes", "sequence"), CASES, ids=["tiny", "edge int4"])
def test_optimum_of_exhaustion(config: Config, sizes: EncoderSizes, sequence: int) -> None:
    network = random_encoder(sizes, 3)
    found = search_layer(network, config, sequence)
    for phase, space in layer_spaces(network, config, sequence).items():
        part, cost = found[phase], phase_cost(network, config, phase, sequence)
        assert part.certified
        known = {trial.point: trial.cycles for trial in part.trials}
        for point in space.points():
            try:
                cycles = known.get(point) or cost(point)
            except CompileError:
                continue
            # No program is below its bound, nor below those of the branches that lead to it.
            assert space.bound(point) <= cycles
            assert part.cycles <= cycles
        for value in space.axes[space.branches[0]]:
            branch = space.least({space.branches[0]: value})[1]
            assert all(branch <= space.bound(point) for point in space.points()
                       if getattr(point, space.branches[0]) == value)
        assert part.cycles <= (part.first_cycles or 0)
    mapping = layer_mapping(found, sequence)
    whole = layer_cost(network, config, mapping)
    # Phases overlap at borders, but the layer is not below its own bound; nor is any with other mappings.
    assert max(part.cycles for part in found.values()) < whole < sum(part.cycles for part in found.values())
    random, bound = np.random.default_rng(5), layer_bound(layer_spaces(network, config, sequence))[1]
    fitting = {phase: [trial.point for trial in part.trials if trial.cycles] for phase, part in found.items()}
    for _ in range(8):
        other = EncoderMapping(sequence=sequence, **{
            phase: points[random.integers(len(points))] for phase, points in fitting.items()})
        assert bound <= layer_cost(network, config, other)
    program = compile_encoder(network, config, sequence=sequence, mapping=mapping)
    EncoderBench(program, network).run(random_rows(network, sequence))


def test_bound_of_a_layer_that_the_mesh_bounds() -> None:
    """Below every program in a sample of the joint space, and so near that a mesh counted twice would be seen."""
    network, random = random_encoder(EncoderSizes(layers=1, hidden=64, inner=256, heads=4, positions=64), 3), Random(5)
    spaces = layer_spaces(network, EDGE, 64)
    (reason, bound), points = layer_bound(spaces), {phase: list(space.points()) for phase, space in spaces.items()}
    taken = [layer_cost(network, EDGE, EncoderMapping(sequence=64, **{
        phase: space.first() for phase, space in spaces.items()}))]
    while len(taken) < 12:
        mapping = EncoderMapping(sequence=64, **{phase: random.choice(each) for phase, each in points.items()})
        try:
            taken.append(layer_cost(network, EDGE, mapping))
        except CompileError:
            continue
    assert reason == "the mesh"
    assert bound <= min(taken) < 2 * bound


def test_real_phase_against_the_other_search() -> None:
    """Attention of BERT-base: few mappings, each long."""
    network = random_encoder(EncoderSizes(layers=1, hidden=768, inner=3072, heads=12, positions=64), 0, weights=False)
    config = load_config("base")
    space = layer_spaces(network, config, 64)["attention"]
    both = [Mapper(space, phase_cost(network, config, "attention", 64)).find(method)
            for method in (exhaustive.search, branch_and_bound.search)]
    assert both[0] is not None
    assert both[1] is not None
    assert both[0].cycles == both[1].cycles
    assert both[1].certified


def test_explained() -> None:
    config, sizes, sequence = CASES[0]
    network = random_encoder(sizes, 3)
    found, spaces = search_layer(network, config, sequence), layer_spaces(network, config, sequence)
    lines = list(explained(found, spaces))
    heads = [line for line in lines if not line.startswith(" ")]
    assert [line.partition(":")[0] for line in heads] == ["heads", "attention", "output", "mlp"]
    assert all("the optimum" in line for line in heads)
    few = search_layer(network, config, sequence, 1)
    assert "others were not looked at" in "".join(explained(few, spaces))
    assert found == search_layer(network, config, sequence)  # from the cache, seconds and all
    assert replace(few["mlp"], seconds=0).trials != found["mlp"].trials
