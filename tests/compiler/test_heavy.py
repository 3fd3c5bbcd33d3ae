"""Selecting passes that go on summing probabilities: sums, lists and both caches are the integer interpreter's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmule import numerics
from gemmule.compiler.ir import Cache, Network, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.moves import LISTS, list_pitch
from gemmule.compiler.programs.selecting import KEPT
from gemmule.config import Config, load_config
from tests.compiler.integer_networks import random_network
from tests.compiler.test_selecting import KINDS, SEED, Selecting
from tests.thinned import thinned

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
            kept = max(FIRST + LAST, count // 2) if at == windows[-1] else None
            bench.go_on(text[at:at + rows], kept, behind if kept else 0)
        bench.pass_kept(random.integers(0, bench.network.graph.vocab, 1).tolist())


@pytest.mark.parametrize(("kind", "config"), thinned(KINDS, [EDGE, BASE]))
def test_equals_the_interpreter(config: Config, kind: str) -> None:
    print(f"seed {SEED}")
    rows = 8 if config is BASE else 4
    bench = Heavy(random_network(KINDS[kind], SEED), config, rows)
    _walk(bench, rows, [31, 64, 75])
