"""Encoders from which heads leave: compiled programs against the interpreter, by schedule; schedules that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, HeadPruning, IntegerInterpreter, PruningInterpreter, Rows, TokenPruning
from gemmule.compiler.ir.head_pruning import chosen_heads, head_importance
from gemmule.compiler.kernels.attention.heads.gates import HeadGates
from gemmule.compiler.kernels.attention.heads.sums import HeadSums
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.config import Config, load_config
from gemmule.isa import Unit
from gemmule.numerics import IMPORTANCE_MAX
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from tests.compiler.encoder_bench import EncoderBench, random_rows
from tests.compiler.integer_encoders import EncoderSizes, random_encoder
from tests.compiler.integer_networks import Sizes, random_network

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261127
DRAWN = 8


def _heads(*left: float | int, **rows: Any) -> TokenPruning:
    return TokenPruning(heads=HeadPruning(layers=left), **rows)


@pytest.mark.parametrize(("config", "sizes", "pruning", "lengths"), [
    (TINY, EncoderSizes(layers=4, labels=7), _heads(2, 2, 1), (1, 2, 5, 16, 17, 33, 40)),
    (TINY, EncoderSizes(layers=3, hidden=48, heads=6), _heads(1.0, 0.5), (1, 16, 40)),
    (TINY, EncoderSizes(layers=4, hidden=48, heads=6), _heads(5, 3, 2, 1, layers=(1.0, 0.6, 0.6, 0.3), last=1), (
        1, 5, 16, 40)),  # rows too
    (TINY, EncoderSizes(layers=3, hidden=36, heads=4), _heads(3, 2, layers=(20, 7), importance="layers"), (3, 20, 21)),
    (TINY, EncoderSizes(hidden=72, inner=100, positions=64), _heads(2), (1, 17, 40)),  # a block a turn
    (EDGE, EncoderSizes(layers=3, hidden=36, inner=70, positions=70), _heads(2, 1), (1, 7, 32, 33, 65, 70)),
    (BASE, EncoderSizes(layers=3, hidden=96, heads=4, inner=100, labels=3, positions=150), _heads(
        3, 2, layers=(0.7, 0.3), first=2, last=3), (1, 16, 17, 64, 65, 150)),
    (BASE, EncoderSizes(hidden=64, heads=2, inner=64, bits=4, group=32, positions=70), _heads(1), (1, 33, 70)),
])
def test_every_length_equals_the_interpreter(config: Config, sizes: EncoderSizes, pruning: TokenPruning,
                                             lengths: tuple[int, ...]) -> None:
    """Output, lists of rows and of heads; blocks of rows whole, begun and missing."""
    network = random_encoder(sizes, 1)
    bench = EncoderBench(compile_encoder(network, config, sequence=max(lengths), base_address=1024, pruning=pruning),
                         network)
    for length in lengths:
        bench.run(random_rows(network, length))


def test_random_schedules() -> None:
    """Shares and numbers, with rows and without."""
    print(f"seed {SEED}")
    random = np.random.default_rng(SEED)
    for number in range(DRAWN):
        heads = int(random.integers(2, 9))
        network = random_encoder(EncoderSizes(layers=4, hidden=4 * heads, heads=heads), number)
        left: list[Any] = np.sort(random.uniform(0.05, 1, random.integers(1, 5)))[::-1].tolist()
        if number % 2:
            left = sorted((int(kept) for kept in random.integers(1, heads + 1, len(left))), reverse=True)
        pruning = _heads(*left, layers=(float(random.uniform(0.3, 1)),) if number % 3 == 0 else (1.0,))
        bench = EncoderBench(compile_encoder(network, TINY, sequence=29, pruning=pruning), network)
        for length in (1, 29, *random.integers(2, 29, 2).tolist()):
            bench.run(random_rows(network, length, number))


@pytest.mark.rtl
def test_rtl_gives_the_same_bytes_and_cycles() -> None:
    network = random_encoder(EncoderSizes(layers=3, labels=2), 2)
    program = compile_encoder(network, TINY, sequence=21, pruning=_heads(2, 1, layers=(1.0, 0.5)))
    with RtlDevice(TINY) as rtl:
        bench = EncoderBench(program, network, rtl)
        for length in (1, 6, 21):
            bench.run(random_rows(network, length))


def test_all_heads_are_the_dense_program() -> None:
    """Byte for byte, by share and by number; beside a schedule of rows too."""
    network = random_encoder(EncoderSizes(), 1)
    dense = compile_encoder(network, TINY, sequence=20)
    for left in ((1.0,), (3,), (3, 3)):
        assert compile_encoder(network, TINY, sequence=20, pruning=_heads(*left)).image == dense.image
    rows = {"layers": (0.5,)}
    assert compile_encoder(network, TINY, sequence=20, pruning=_heads(1.0, **rows)).image == compile_encoder(
        network, TINY, sequence=20, pruning=TokenPruning(**rows)).image


@pytest.mark.parametrize("how", ["standard", "online", "unfused"])
def test_other_ways_of_attention(how: str) -> None:
    """Heads need no scores, so they leave however attention goes."""
    network = random_encoder(EncoderSizes(layers=3), 1)
    if how == "online":
        network = network.with_softmax(None, 8)
    bench = EncoderBench(compile_encoder(network, TINY, sequence=21, standard=how == "standard",
                                         fused=how != "unfused", pruning=_heads(2, 1)), network)
    for length in (1, 7, 21):
        bench.run(random_rows(network, length))


def test_fewer_heads_take_less_time_and_load_less() -> None:
    network = random_encoder(EncoderSizes(layers=4, hidden=256, heads=8, inner=16, positions=64), 1)
    cycles, loaded = [], []
    for pruning in (None, _heads(4), _heads(1)):
        bench = EncoderBench(compile_encoder(network, BASE, sequence=64, pruning=pruning), network)
        cycles.append(bench.run(random_rows(network, 64)))
        loaded.append(bench.devices[0].run().dram_bytes["load"])
    assert cycles[0] > 1.1 * cycles[1] > 1.1 * 1.1 * cycles[2]
    assert loaded[0] > loaded[1] > loaded[2]


def test_time_without_data() -> None:
    """Which heads stay hardly matters; the first are taken where no data decide."""
    network = random_encoder(EncoderSizes(layers=3, hidden=64, heads=8, inner=32, positions=48), 1)
    program = compile_encoder(network, EDGE, sequence=48, pruning=_heads(5, 2))
    rows = random_rows(network, 48)
    cycles = EncoderBench(program, network).run(rows)
    model = Simulator(EDGE, dram_bytes=1)
    model.load(program.launch("pass", NO_DRAM, program.step(rows).registers))
    places = model.run(timing_only=True).places
    skipped = program.skipped()[places]
    found = model.run(timing_only=True, indices=program.gathered(rows), skipped=skipped)
    assert found.cycles == pytest.approx(cycles, rel=0.02)
    products = [program.commands[place].note for place, out in zip(places, skipped, strict=True)
                if not out and program.commands[place].unit is Unit.MATRIX]
    assert {note.split(":")[1] for note in products if note.startswith("1.attention")} == {
        f" head {head}" for head in range(5)}
    assert {note.split(":")[1] for note in products if note.startswith("2.attention")} == {" head 0", " head 1"}


class _Planted(PruningInterpreter):
    """Keeps the heads of a list that is one shorter, and the least important one."""

    def choose_heads(self, importance: np.ndarray, kept: int) -> np.ndarray:
        return np.sort(np.append(super().choose_heads(importance, kept - 1), np.argmin(importance)))


class _Shifted(PruningInterpreter):
    """Keeps the head behind each that should be kept."""

    def choose_heads(self, importance: np.ndarray, kept: int) -> np.ndarray:
        return super().choose_heads(np.roll(importance, 1), kept)


class _Short(PruningInterpreter):
    """Keeps a head too few."""

    def choose_heads(self, importance: np.ndarray, kept: int) -> np.ndarray:
        return super().choose_heads(importance, kept - 1)


@pytest.mark.parametrize("wrong", [_Planted, _Shifted, _Short])
def test_a_planted_fault_of_the_choice_shows(wrong: type[PruningInterpreter]) -> None:
    """One head more, less or beside, and both output and list differ."""
    network, pruning = random_encoder(EncoderSizes(hidden=48, heads=6), 3), _heads(3)
    bench = EncoderBench(compile_encoder(network, TINY, sequence=30, pruning=pruning), network)
    rows = random_rows(network, 30)
    bench.run(rows)
    expected = bench.interpreter.forward(rows, Cache(network.graph))
    bench.interpreter = wrong(network, pruning)
    assert not np.array_equal(bench.interpreter.forward(rows, Cache(network.graph)), expected)
    with pytest.raises(AssertionError):
        bench.run(rows)


def _swapped(predicate: Callable[[HeadGates, int], int]) -> Callable[[HeadGates, int], int]:
    return lambda gates, head: predicate(gates, head ^ 1)


def _longer(choose: Callable[[HeadSums], None]) -> Callable[[HeadSums], None]:
    def wrong(sums: HeadSums) -> None:
        schedule = sums.schedule
        sums.schedule = replace(schedule, left=tuple(min(left + 1, schedule.heads - 1) for left in schedule.left))
        choose(sums)

    return wrong


@pytest.mark.parametrize(("owner", "name", "wrong"), [
    (HeadGates, "predicate", _swapped), (HeadSums, "choose", _longer)])
def test_a_planted_fault_of_the_program_shows(monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str,
                                              wrong: Callable[[Any], Any]) -> None:
    """Flags of a neighbour, or a list that is one longer: the program's output is another."""
    network, pruning = random_encoder(EncoderSizes(hidden=48, heads=6), 3), _heads(3)
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    bench = EncoderBench(compile_encoder(network, TINY, sequence=30, pruning=pruning), network)
    with pytest.raises(AssertionError):
        bench.run(random_rows(network, 30))


def test_a_schedule_leaves() -> None:
    """Shares of the heads, rounded up; layers that are not named leave what there is."""
    graph = random_encoder(EncoderSizes(layers=5, hidden=48, heads=6), 1).graph
    schedule = HeadPruning(layers=(1.0, 0.6, 0.6, 0.1)).schedule(graph)
    assert schedule.left == (6, 4, 4, 1, 1)
    assert schedule.choosing == (1, 3)
    assert [schedule.before(layer) for layer in range(5)] == [6, 6, 4, 4, 1]
    assert [schedule.choices(layer) for layer in range(5)] == [0, 0, 1, 1, 2]
    assert [schedule.adds(layer) for layer in range(5)] == [True] * 4 + [False]
    assert HeadPruning(layers=(6, 5)).schedule(graph).left == (6, 5, 5, 5, 5)


def test_choice() -> None:
    """By importance, of equal heads the first; saturated ones are equal; magnitudes of -128 count as 128."""
    importance = np.array([5, 9, 9, 1, 9, 7])
    assert chosen_heads(importance, 2, 0).tolist() == [1, 2]
    assert chosen_heads(importance, 4, 0).tolist() == [1, 2, 4, 5]
    assert chosen_heads(importance, 2, 3).tolist() == [1, 2]
    assert chosen_heads(np.array([8, 15, 16]), 2, 3).tolist() == [0, 2]
    assert chosen_heads(np.array([IMPORTANCE_MAX, IMPORTANCE_MAX + 5]), 1, 8).tolist() == [0]
    contexts = np.array([[-128, 3, 0, -1], [127, -3, 5, 0]])
    assert head_importance(contexts, 2).tolist() == [128 + 3 + 127 + 3, 6]


def test_importance_goes_on_through_layers() -> None:
    """A head's sum is that of all layers so far; one that has left gains nothing, and does not come back."""
    network = random_encoder(EncoderSizes(layers=4, hidden=48, heads=6), 5)
    rows, seen = random_rows(network, 30), list[np.ndarray]()

    class Seen(PruningInterpreter):
        """Keeps what it is asked to choose from."""

        def choose_heads(self, importance: np.ndarray, kept: int) -> np.ndarray:
            seen.append(importance)
            return super().choose_heads(importance, kept)

    contexts: dict[str, np.ndarray] = {}
    interpreter = Seen(network, _heads(6, 4, 3))
    interpreter.forward(rows, Cache(network.graph), observe=contexts.__setitem__)
    each = [head_importance(contexts[f"{layer}.attention"], 6) for layer in range(4)]
    np.testing.assert_array_equal(seen[0], each[0] + each[1])
    np.testing.assert_array_equal(seen[1], each[0] + each[1] + each[2])
    first, second, third = (interpreter.kept_heads[0][layer] for layer in (1, 2, 3))
    gone = np.setdiff1d(np.arange(6), first)
    assert (each[2][gone] == 0).all()
    assert set(second) < set(first)
    np.testing.assert_array_equal(second, third)


def test_tied_heads() -> None:
    """Equal heads: the first stay, on the device too."""
    network = random_encoder(EncoderSizes(layers=3, hidden=16, heads=4), 1)
    tensors = dict(network.weights)
    for layer in range(3):
        for name in ("query", "key", "value"):
            node = network.graph.by_name[f"{layer}.{name}"]
            for role in node.tensors:
                found = np.array(network.tensor(node, role))
                found[4:] = np.tile(found[:4], (3, *[1] * (found.ndim - 1)))
                tensors[node.tensors[role]] = found
        node = network.graph.by_name[f"{layer}.attention"]
        for role in ("score", "context"):
            tensors[node.tensors[role]] = np.tile(np.array(network.tensor(node, role))[:1], (4, 1))
    equal = replace(network, weights=tensors)
    bench = EncoderBench(compile_encoder(equal, TINY, sequence=9, pruning=_heads(3, 2)), equal)
    bench.run(random_rows(equal, 9))
    assert isinstance(bench.interpreter, PruningInterpreter)
    assert [kept.tolist() for kept in bench.interpreter.kept_heads[0]] == [[0, 1, 2], [0, 1], [0, 1]]


def test_several_sequences_of_the_interpreter() -> None:
    """Each of a pass loses its own heads, as alone."""
    network = random_encoder(EncoderSizes(layers=3, hidden=48, heads=6), 3)
    parts = [list(range(1, 14)), [5, 9], list(range(30, 55))]
    interpreter = PruningInterpreter(network, _heads(4, 2, layers=(0.6,)))
    found = interpreter.forward(Rows.ragged(parts, [0, 0, 0]), Cache(network.graph))
    together = dict(interpreter.kept_heads)
    alone = [interpreter.forward(Rows.chain(part), Cache(network.graph)) for part in parts]
    np.testing.assert_array_equal(found, np.concatenate(alone))
    assert len({tuple(kept[0].tolist()) for kept in together.values()}) > 1


def test_all_heads_are_the_dense_interpreter() -> None:
    network = random_encoder(EncoderSizes(), 3)
    rows = random_rows(network, 20)
    np.testing.assert_array_equal(PruningInterpreter(network, _heads(1.0)).forward(rows, Cache(network.graph)),
                                  IntegerInterpreter(network).forward(rows, Cache(network.graph)))


@pytest.mark.parametrize(("left", "message"), [
    ((0.5, 0.7), "layer 1 must leave at most what layer 0 leaves, 0.5, not 0.7: heads that have left"),
    ((2, 3), "layer 1 must leave at most what layer 0 leaves, 2, not 3"),
    ((0.5, 0.0), "layer 1 must leave more than 0 heads, not 0.0: leave at least 1"),
    ((2, 0), "layer 1 must leave more than 0 heads, not 0"),
    ((float("nan"),), "layer 0 must leave more than 0 heads, not nan"),
    ((1.5,), "layer 0 must leave a share of at most 1.0, more heads do not exist, not 1.5"),
    ((1, 0.5), "heads must be all shares or all numbers of heads, not .1, 0.5.: write 1.0 for all heads"),
    ((), "heads must be numbers, one a layer, not ..: such as"),
    ((True,), "heads must be numbers, one a layer, not .True."),
])
def test_refuses_schedules(left: tuple[Any, ...], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        HeadPruning(layers=left)


def test_refuses_networks_and_devices() -> None:
    network = random_encoder(EncoderSizes(), 1)
    for pruning, message in (
            (_heads(3, 2, 1), "heads must be at most 2 numbers, one for each layer that the network has, not 3"),
            (_heads(4), "layer 0 must leave at most 3 heads, which the network has, not 4: leave fewer")):
        with pytest.raises(CompileError, match=message):
            compile_encoder(network, TINY, sequence=20, pruning=pruning)
    with pytest.raises(CompileError, match="rows and heads leave an encoder only, and this is a decoder"):
        PruningInterpreter(random_network(Sizes(family="gpt2"), 1), _heads(0.5))
    few = Config(**(TINY.model_dump() | {"name": "few", "select_keys": 64, "acc_kib": 32, "spm_kib": 32,
                                         "list_entries": 256}))
    long = random_encoder(EncoderSizes(positions=80), 1)
    both = _heads(2, layers=(0.5,))
    with pytest.raises(CompileError, match=r"sequences of at most 61 rows beside 3 heads .select_keys., not 62"):
        compile_encoder(long, few, sequence=62, pruning=both)
    EncoderBench(compile_encoder(long, few, sequence=61, pruning=both), long).run(random_rows(long, 61))
    EncoderBench(compile_encoder(long, few, sequence=80, pruning=replace(both, layers=(1.0,))), long).run(
        random_rows(long, 80))
    wide = random_encoder(EncoderSizes(hidden=256, heads=1), 1)
    with pytest.raises(CompileError, match="heads are chosen of at most 255 columns each, not 256"):
        compile_encoder(wide, BASE, sequence=20, pruning=_heads(0.5))
