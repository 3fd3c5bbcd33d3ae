"""Encoders from which rows leave: compiled programs against the interpreter, by schedule; schedules that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, IntegerInterpreter, PruningInterpreter, Rows, TokenPruning
from gemmule.compiler.ir.token_pruning import chosen_rows, importance_shift
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.config import Config, load_config
from gemmule.numerics import KEY_MAX
from gemmule.sim.rtl.device import RtlDevice
from tests.compiler.encoder_bench import EncoderBench, random_rows
from tests.compiler.integer_encoders import EncoderSizes, random_encoder
from tests.compiler.integer_networks import Sizes, random_network

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261203
DRAWN = 8


def _pruning(*layers: float | int, first: int = 1, last: int = 0, importance: str = "layer") -> TokenPruning:
    return TokenPruning(layers=layers, first=first, last=last, importance=importance)


@pytest.mark.parametrize(("config", "sizes", "pruning", "lengths"), [
    (TINY, EncoderSizes(layers=3, labels=7), _pruning(0.8, 0.5, 0.3, last=1), (1, 2, 5, 16, 17, 33, 40)),
    (TINY, EncoderSizes(layers=3), _pruning(1.0, 0.5), (1, 4, 5, 16, 40)),
    (TINY, EncoderSizes(layers=2), _pruning(9, 4, first=0, last=2), (3, 9, 10, 40)),
    (TINY, EncoderSizes(layers=4), _pruning(1.0, 0.6, 0.6, 0.3, importance="layers"), (1, 5, 16, 40)),
    (TINY, EncoderSizes(hidden=72, inner=100, positions=64), _pruning(0.6), (1, 17, 40)),  # a block a turn
    (EDGE, EncoderSizes(hidden=36, inner=70, positions=70), _pruning(0.9, 0.4), (1, 7, 32, 33, 65, 70)),
    (BASE, EncoderSizes(hidden=48, heads=2, inner=100, labels=3, positions=150), _pruning(0.7, 0.3, first=2, last=3),
     (1, 16, 17, 64, 65, 150)),
])
def test_every_length_equals_the_interpreter(config: Config, sizes: EncoderSizes, pruning: TokenPruning,
                                             lengths: tuple[int, ...]) -> None:
    """Output and lists; blocks of rows whole, begun and missing on either side of a choice."""
    network = random_encoder(sizes, 1)
    program = compile_encoder(network, config, sequence=max(lengths), base_address=1024, pruning=pruning)
    bench = EncoderBench(program, network)
    for length in lengths:
        bench.run(random_rows(network, length))


def test_random_schedules() -> None:
    """Shares and numbers, growing strictness, rows that are always kept at both ends."""
    print(f"seed {SEED}")
    random = np.random.default_rng(SEED)
    for number in range(DRAWN):
        network = random_encoder(EncoderSizes(layers=3, labels=int(random.integers(0, 3))), number)
        first, last = int(random.integers(1, 4)), int(random.integers(0, 4))
        layers: list[Any] = np.sort(random.uniform(0.05, 1, random.integers(1, 4)))[::-1].tolist()
        if number % 2:
            layers = sorted((int(rows) for rows in random.integers(first + last, 29, len(layers))), reverse=True)
        pruning = TokenPruning(layers=tuple(layers), first=first, last=last,
                               importance=str(random.choice(["layer", "layers"])))
        bench = EncoderBench(compile_encoder(network, TINY, sequence=29, pruning=pruning), network)
        for length in (1, 29, *random.integers(2, 29, 2).tolist()):
            bench.run(random_rows(network, length, number))


@pytest.mark.rtl
def test_rtl_gives_the_same_bytes_and_cycles() -> None:
    network = random_encoder(EncoderSizes(layers=3, labels=2), 2)
    program = compile_encoder(network, TINY, sequence=21, pruning=_pruning(
        0.8, 0.8, 0.4, last=1, importance="layers"))
    with RtlDevice(TINY) as rtl:
        bench = EncoderBench(program, network, rtl)
        for length in (1, 6, 21):
            bench.run(random_rows(network, length))


def test_everything_kept_is_the_dense_program() -> None:
    """Byte for byte; and where a short sequence keeps all, its output is the dense one's."""
    network = random_encoder(EncoderSizes(), 1)
    dense = compile_encoder(network, TINY, sequence=20)
    assert compile_encoder(network, TINY, sequence=20, pruning=_pruning(1.0, 1.0)).image == dense.image
    bench = EncoderBench(compile_encoder(network, TINY, sequence=20, pruning=_pruning(12, 12)), network)
    rows = random_rows(network, 12)
    bench.run(rows)
    found = bench.program.read_output(bench.devices[0].read_dram, 12)
    np.testing.assert_array_equal(found, IntegerInterpreter(network).forward(rows, Cache(network.graph)))


def test_without_fusion_the_same_bytes() -> None:
    network = random_encoder(EncoderSizes(), 1)
    bench = EncoderBench(compile_encoder(network, TINY, sequence=21, fused=False, pruning=_pruning(0.5)), network)
    for length in (1, 7, 21):
        bench.run(random_rows(network, length))


def test_fewer_rows_take_less_time_and_fewer_products() -> None:
    network = random_encoder(EncoderSizes(layers=4), 1)
    cycles = [EncoderBench(compile_encoder(network, TINY, sequence=40, pruning=pruning), network).run(
        random_rows(network, 40)) for pruning in (None, _pruning(0.5), _pruning(0.25))]
    assert cycles[0] > 1.3 * cycles[1] > 1.3 * 1.15 * cycles[2]


class _Planted(PruningInterpreter):
    """Keeps the rows of a list that is one shorter, and the first one that it leaves out."""

    def choose(self, importance: np.ndarray, kept: int) -> np.ndarray:
        chosen = super().choose(importance, kept - 1) if kept > 1 else np.zeros(0, dtype=np.int64)
        others = np.setdiff1d(np.arange(len(importance)), chosen)
        return np.sort(np.append(chosen, others[-1]))


class _Shifted(PruningInterpreter):
    """Keeps the row behind each that should be kept."""

    def choose(self, importance: np.ndarray, kept: int) -> np.ndarray:
        return super().choose(np.roll(importance, 1), kept)


class _Short(PruningInterpreter):
    """Keeps a row too few."""

    def choose(self, importance: np.ndarray, kept: int) -> np.ndarray:
        return super().choose(importance, max(1, kept - 1))


@pytest.mark.parametrize("wrong", [_Planted, _Shifted, _Short])
def test_a_planted_fault_of_the_choice_shows(wrong: type[PruningInterpreter]) -> None:
    """One row more, less or beside, and the comparison fails."""
    network, pruning = random_encoder(EncoderSizes(), 1), _pruning(0.5)
    bench = EncoderBench(compile_encoder(network, TINY, sequence=30, pruning=pruning), network)
    rows = random_rows(network, 30)
    bench.run(rows)
    bench.interpreter = wrong(network, pruning)
    with pytest.raises(AssertionError):
        bench.run(rows)


def test_a_schedule_leaves() -> None:
    """Shares of the sequence, rounded up; never fewer than are always kept, never more than there are."""
    assert _pruning(1.0, 0.7, 0.5).rows(10) == [10, 7, 5]
    assert _pruning(0.3, 0.01, last=1).rows(10) == [3, 2]
    assert _pruning(0.5, first=3, last=2).rows(4) == [4]
    assert _pruning(9, 5).rows(7) == [7, 5]
    assert _pruning(0.5, first=0).rows(1) == [1]
    assert _pruning(1.0, 0.5, 0.5, 0.2).pruning == (1, 3)
    assert _pruning(9, 9, 5).pruning == (0, 2)


def test_choice() -> None:
    """By importance, of equal rows the first; guarded ones count as the largest; numbers of 32 bits keep their order.
    """
    importance = np.array([5, 9, 9, 1, 9, 7])
    assert chosen_rows(importance, 3, _pruning(0.5, first=0), 0).tolist() == [1, 2, 4]
    assert chosen_rows(importance, 2, _pruning(0.5, first=0), 0).tolist() == [1, 2]
    assert chosen_rows(importance, 3, _pruning(0.5, first=1, last=1), 0).tolist() == [0, 1, 5]
    graph = random_encoder(EncoderSizes(positions=512, heads=3, layers=2), 1).graph
    for layers, over in ((1, "layer"), (2, "layers")):
        pruning, most = _pruning(0.5, first=0, importance=over), layers * 3 * 512 * 65535
        shift = importance_shift(graph, pruning)
        assert KEY_MAX // 2 < most >> shift < KEY_MAX
        assert chosen_rows(np.array([most, most - (1 << shift)]), 1, pruning, shift).tolist() == [0]


def test_importance_of_all_layers_since() -> None:
    """It is the sum of what layers attend to since rows last left."""
    network, rows = random_encoder(EncoderSizes(layers=4), 5), random_rows(random_encoder(EncoderSizes(), 5), 30)

    class Seen(PruningInterpreter):
        """Keeps what it is asked to choose from."""

        def choose(self, importance: np.ndarray, kept: int) -> np.ndarray:
            seen.append(importance)
            return super().choose(importance, kept)

    single, seen = [], list[np.ndarray]()
    for layers in ((0.5,), (1.0, 0.5)):
        Seen(network, _pruning(*layers)).forward(rows, Cache(network.graph))
        single.append(seen.pop())
    Seen(network, _pruning(1.0, 0.5, 0.5, 0.2, importance="layers")).forward(rows, Cache(network.graph))
    np.testing.assert_array_equal(seen[0], single[0] + single[1])
    assert len(seen[1]) == 15


def test_several_sequences_of_the_interpreter() -> None:
    """Each of a pass loses its own rows, as alone."""
    network, pruning = random_encoder(EncoderSizes(), 3), _pruning(0.6, 0.3)
    parts = [list(range(1, 14)), [5, 9], list(range(30, 55))]
    interpreter = PruningInterpreter(network, pruning)
    found = interpreter.forward(Rows.ragged(parts, [0, 0, 0]), Cache(network.graph))
    assert np.bincount(interpreter.left.sequences).tolist() == [4, 1, 8]
    alone = np.concatenate([interpreter.forward(Rows.chain(part), Cache(network.graph)) for part in parts])
    np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize(("layers", "ends", "message"), [
    ((0.5, 0.7), (1, 0), "layer 1 must keep at most what layer 0 leaves, 0.5, not 0.7: rows that have left"),
    ((9, 10), (1, 0), "layer 1 must keep at most what layer 0 leaves, 9, not 10"),
    ((0.5, 0.0), (1, 0), "layer 1 must keep more than 0 rows, not 0.0: keep at least 1"),
    ((4, -1), (1, 0), "layer 1 must keep more than 0 rows, not -1"),
    ((float("nan"),), (1, 0), "layer 0 must keep more than 0 rows, not nan"),
    ((1.5,), (1, 0), "layer 0 must keep a share of at most 1.0, more rows do not exist, not 1.5"),
    ((1, 0.5), (1, 0), "layers must be all shares or all numbers of rows, not .1, 0.5.: write 1.0 for all rows"),
    ((), (1, 0), "layers must be numbers, one a layer, not ..: such as"),
    ((True,), (1, 0), "layers must be numbers, one a layer, not .True."),
    ((0.5,), (-1, 0), "first must be a whole number of rows from 0 to 255, not -1"),
    ((0.5,), (1, 256), "last must be a whole number of rows from 0 to 255, not 256"),
    ((9, 3), (2, 2), "layer 1 must keep at least first . last = 4 rows, not 3: keep more"),
])
def test_refuses_schedules(layers: tuple[Any, ...], ends: tuple[int, int], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        TokenPruning(layers=layers, first=ends[0], last=ends[1])


def test_refuses_networks_and_ways() -> None:
    with pytest.raises(CompileError, match="importance must be one of layer, layers, not 'heads'"):
        _pruning(0.5, importance="heads")
    plain, labels = random_encoder(EncoderSizes(), 1), random_encoder(EncoderSizes(labels=2), 1)
    for network, pruning, options, message in (
            (plain, _pruning(0.5, 0.4, 0.3), {}, "layers must be at most 2, which the network has, not 3: leave out"),
            (plain, _pruning(21), {}, "layer 0 must keep at most 20 rows, which a sequence has, not 21"),
            (labels, _pruning(0.5, first=0), {}, "first must be at least 1 where a classifier reads the first row"),
            (plain, _pruning(0.5), {"standard": True}, "keeps its scores, not by standard attention: use exact"),
            (plain.with_softmax(None, 8), _pruning(0.5), {}, "keeps its scores, not by online attention")):
        with pytest.raises(CompileError, match=message):
            compile_encoder(network, TINY, sequence=20, pruning=pruning, **options)
    with pytest.raises(CompileError, match="rows and heads leave an encoder only, and this is a decoder"):
        PruningInterpreter(random_network(Sizes(family="gpt2"), 1), _pruning(0.5))
    few = Config(**(TINY.model_dump() | {"name": "few", "select_keys": 64, "acc_kib": 32, "spm_kib": 32,
                                         "list_entries": 256}))
    with pytest.raises(CompileError, match=r"sequences of at most 64 rows .select_keys., not 65: use shorter ones"):
        compile_encoder(random_encoder(EncoderSizes(positions=80), 1), few, sequence=65, pruning=_pruning(0.5))
    words = Config(**(TINY.model_dump() | {"name": "words", "parameter_words": 16}))
    with pytest.raises(CompileError, match=r"behind at most 15 layers .parameter_words., not 16: keep equal rows"):
        compile_encoder(random_encoder(EncoderSizes(layers=16), 1), words, sequence=20,
                        pruning=_pruning(*range(20, 4, -1)))
