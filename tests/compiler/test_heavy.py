"""Selecting passes that go on summing probabilities: sums, lists and both caches are the integer interpreter's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmule import numerics
from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, Network, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.moves import LISTS, list_pitch
from gemmule.compiler.programs.selecting import KEPT, compile_selection
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from tests.compiler.integer_networks import random_network
from tests.compiler.test_selecting import KINDS, LLAMA, SEED, Selecting
from tests.thinned import some, thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
FIRST, LAST = 3, 16


class Heavy(Selecting):
    """Whose selecting passes count probabilities."""

    def __init__(self, network: Network, config: Config, rows: int, *others: Any, first: int = FIRST,
                 last: int = LAST) -> None:
        super().__init__(network, config, rows, *others, first=first, last=last, heavy=True)
        heads = network.graph.attentions[0].kv_heads
        self.sums = {node.name: np.zeros((heads, 0), dtype=np.int64) for node in network.graph.attentions}

    @property
    def counted(self) -> int:
        return next(iter(self.sums.values())).shape[1]

    def count(self, rows: Rows, before: int) -> None:
        """The interpreter's sums go on; the rows enter its cache."""
        self.cache.truncate(before)
        found = self.interpreter.importance(rows, self.cache, numerics.counted)
        for name, more in found.items():
            self.sums[name] = more + np.pad(self.sums[name], ((0, 0), (0, more.shape[1] - self.sums[name].shape[1])))

    def go_on(self, tokens: list[int], kept: int | None, behind: int = 0) -> None:
        """A pass over the cached rows behind those that are counted, by their ``tokens``; with ``kept`` rows chosen
        among these and ``behind`` later ones it chooses.
        """
        select, prefix = self.selection.select, self.network.graph.prefix
        before, every = prefix + self.counted, self.cache.length()
        rows = Rows.chain(tokens, before)
        self.run(select, select.counting(rows, before) if kept is None else
                 select.choosing(rows, before, kept, behind=behind))
        later = Cache(self.network.graph)
        later.begin_with(self.cache, 0)
        self.count(rows, before)
        self.cache.append(later, before + len(tokens))
        assert self.cache.length() == every
        self.check_sums()
        self.check(CACHE, self.cache)
        if kept is not None:
            self.gather(kept, behind)

    def check_sums(self) -> None:
        for device in self.devices:
            found = self.selection.select.running_sums(device.read_dram, self.counted)
            np.testing.assert_array_equal(found, np.stack([*self.sums.values()]))

    def gather(self, kept: int, behind: int) -> None:
        """The chosen rows; lists and the kept cache are the interpreter's."""
        select, prefix, heads = self.selection.select, self.network.graph.prefix, len(next(iter(self.sums.values())))
        self.run(self.selection.gather, self.selection.gathering(kept))
        pruning, pitch = self.pruning, list_pitch(select.config, select.max_positions)
        lists = {name: np.stack([numerics.top_k(numerics.heavy_keys(
            np.pad(row, (0, behind)), pruning.first, pruning.last), kept) for row in sums])
            for name, sums in self.sums.items()}
        for device in self.devices:
            raw = np.frombuffer(device.read_dram(*select.symbols[LISTS]), dtype="<u2").reshape(-1, pitch // 2)
            for number, found in enumerate(lists.values()):
                np.testing.assert_array_equal(raw[number * heads:(number + 1) * heads, :kept], found + prefix)
        self.kept = Cache(self.network.graph)
        self.kept.begin_with(self.cache, 0)
        self.kept.keep_by_head({name: np.concatenate([np.tile(np.arange(prefix), (heads, 1)), found + prefix], axis=1)
                                for name, found in lists.items()})
        self.check(KEPT, self.kept)


def _walk(bench: Heavy, rows: int, counts: list[int]) -> None:
    """Texts that grow to so many rows; at each length what is not counted is, and rows are chosen."""
    random, prefix = np.random.default_rng(SEED), bench.network.graph.prefix
    text: list[int] = []
    for count in counts:
        bench.grow(prefix + count)
        text += random.integers(0, bench.network.graph.vocab, count - len(text)).tolist()
        windows = range(bench.counted, count - rows + 1, rows)
        for at in windows:
            behind = count - at - rows
            kept = max(bench.pruning.first + bench.pruning.last, count // 2) if at == windows[-1] else None
            bench.go_on(text[at:at + rows], kept, behind if kept else 0)
        bench.pass_kept(random.integers(0, bench.network.graph.vocab, 1).tolist())


@pytest.mark.parametrize(("kind", "config"), thinned(KINDS, [EDGE, BASE]))
def test_equals_the_interpreter(config: Config, kind: str) -> None:
    print(f"seed {SEED}")
    rows = 8 if config is BASE else 4
    bench = Heavy(random_network(KINDS[kind], SEED), config, rows)
    _walk(bench, rows, [31, 64, 75])


@pytest.mark.parametrize("seed", some(range(6)))
def test_random_schedules(seed: int) -> None:
    """Any numbers of rows, of those that always stay, and of those of a constant prefix."""
    random = np.random.default_rng(seed)
    rows, prefix = int(random.integers(1, 5)), int(random.integers(0, 3))
    bench = Heavy(random_network(replace(LLAMA, positions=200, prefix=prefix), seed), EDGE, rows,
                  first=int(random.integers(0, 12)), last=int(random.integers(rows, 12)))
    _walk(bench, rows, sorted(random.integers(30, 150, 3).tolist()))


def test_begins_anew() -> None:
    """Sums of a text before it are in none of the next one's."""
    bench = Heavy(random_network(LLAMA, SEED), EDGE, 4)
    _walk(bench, 4, [60])
    bench.sums = {name: sums[:, :0] for name, sums in bench.sums.items()}
    bench.cache.truncate(0)
    _walk(bench, 4, [33, 64])


COUNTED = numerics.counted


def _shifted(p: np.ndarray) -> np.ndarray:
    return np.roll(COUNTED(p), 1, axis=1)


def _whole(p: np.ndarray) -> np.ndarray:
    return np.asarray(p, dtype=np.int64)


@pytest.mark.parametrize("fault", [_shifted, _whole])
def test_planted_faults_are_seen(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    """Sums that are off by a position, or by what a probability counts, differ from the device's."""
    bench = Heavy(random_network(LLAMA, SEED), EDGE, 4)
    bench.fill_cache(8, SEED)
    bench.go_on([1, 2, 3, 4], None)
    monkeypatch.setattr(numerics, "counted", fault)
    with pytest.raises(AssertionError):
        bench.go_on([1, 2, 3, 4], None)


def test_a_row_that_counts_twice_is_seen() -> None:
    bench = Heavy(random_network(LLAMA, SEED), EDGE, 4)
    bench.fill_cache(8, SEED)
    bench.go_on([1, 2, 3, 4], None)
    bench.check_sums()
    bench.count(Rows.chain([1, 2, 3, 4], 0), 0)
    with pytest.raises(AssertionError):
        bench.check_sums()


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    sizes = replace(LLAMA, head_dim=8, hidden=20, inner=24, positions=80, layers=2, prefix=1)
    with RtlDevice(TINY) as rtl:
        _walk(Heavy(random_network(sizes, SEED), TINY, 2, rtl, last=5), 2, [13, 35])


def test_what_a_probability_counts() -> None:
    """255 and 1 times the two bytes: nearly 65,280 of 65,536, and never less than for a smaller probability."""
    p = np.arange(1 << 16)
    assert (numerics.counted(p) == 255 * (p >> 8) + (p & 255)).all()
    assert (np.diff(numerics.counted(p)) >= 0).all()
    assert numerics.counted(p)[-1] == numerics.MOST_COUNTED


def test_keys_saturate() -> None:
    sums = np.array([0, 63, 64, 1 << 22, (1 << 22) - 65, (1 << 31) - 1])
    keys = numerics.heavy_keys(sums, 0, 0) >> 8
    np.testing.assert_array_equal(keys - (1 << 15), [0, 0, 1, 32767, 32767, 32767])
    assert numerics.heavy_keys(sums, 1, 0)[0] == numerics.KEY_MAX > keys[-1] << 8


@pytest.mark.parametrize(("behind", "message"), [
    (17, "rows that are not counted must be from 0 to 16, as many as always stay, not 17"),
    (-1, "must be from 0 to 16, .*, not -1")])
def test_refuses(behind: int, message: str) -> None:
    select = Heavy(random_network(LLAMA, SEED), BASE, 8).selection.select
    with pytest.raises(CompileError, match=message):
        select.choosing_registers(8, 60, 40, behind=behind)


def test_refuses_what_does_not_count() -> None:
    select = Selecting(random_network(LLAMA, SEED), BASE, 8).selection.select
    for asked in (lambda: select.counting_registers(8, 60), lambda: select.running_sums(lambda *_: b"", 8)):
        with pytest.raises(CompileError, match="running sums need a program that counts probabilities"):
            asked()


def test_refuses_sums_that_overflow() -> None:
    """Of 8 heads that share a KV head a position may get 8 probabilities of 1 from each row."""
    network = random_network(replace(LLAMA, heads=8, kv_heads=1, head_dim=8, hidden=64, positions=4200, layers=1), SEED)
    config = Config.model_validate(BASE.model_dump() | {"name": "long-lists", "select_keys": 8192,
                                                        "list_entries": 16384})
    program = compile_network(network, config, rows=4, tokens=True)
    with pytest.raises(CompileError, match="have 32 bits, for at most 32,896 rows .* not 8 x 4,200"):
        compile_selection(network, program, rows=4, first=4, last=4, base_address=1 << 24, heavy=True)
