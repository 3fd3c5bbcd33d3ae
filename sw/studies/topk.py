"""Top-K engines: the radix selection of this device beside quick-select and a sorting network, in cycles.

SpAtten (Wang et al., HPCA 2021) selects with quick-select at 16 keys a cycle; its released latency model takes
``ceil(n / 16) + 3`` cycles a round, over the keys that are left, with a random pivot (repository mit-han-lab/spatten,
commit a0f1388). The model is run again here for random distinct keys, and for the worst pivots. A bitonic network that
sorts 64 keys at a time, and merges the best ones, is counted in compare-exchanges.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemmule.config import Config
from gemmule.isa import NUM_BASES, NUM_LENGTHS, Command, KeysFlag, SOp, Unit, encode_program
from gemmule.sim.launch import Launch
from gemmule.sim.simulator import Simulator
from gemmule.sw.studies import Row, Study
from gemmule.timing import ceil_div

__all__ = ["STUDY", "quick_select", "top_k_cycles", "topk_rows", "worst_quick_select"]

SIZES = ((64, 32), (256, 32), (1024, 512), (1024, 16), (4096, 32))
"""Keys, and those that are kept."""
LANES, ROUND = 16, 3
RUNS = 400


def top_k_cycles(config: Config, keys: int, kept: int) -> int:
    """Cycles of this device's TOP_K from issue to finish."""
    memory = max(keys, config.select_keys)
    device = Config.model_validate(config.model_dump() | {
        "select_keys": memory, "list_entries": max(memory, config.list_entries)})
    commands = [
        Command.make(Unit.SELECT, op=SOp.KEYS, flags={KeysFlag.FROM_IMPORTANCE}, first=0, dst=0, n=keys),
        Command.make(Unit.SELECT, op=SOp.TOP_K, n=keys, k=kept, dst=0)]
    image = encode_program(commands)
    simulator = Simulator(device, dram_bytes=len(image))
    simulator.load(Launch(
        name="top-k", seed=0, image=image, program=0, dram=np.zeros(0, dtype=np.uint8),
        bases=np.zeros(NUM_BASES, dtype=np.int64), limits=np.zeros(NUM_BASES, dtype=np.int64),
        lengths=np.zeros(NUM_LENGTHS, dtype=np.int64)))
    result = simulator.run(timing_only=True)
    return int(result.finish[1] - result.issue[1])


def quick_select(keys: int, kept: int, random: np.random.Generator) -> int:
    """Cycles of SpAtten's latency model for random distinct keys: rounds until the pivot is the smallest kept key."""
    low, high, cycles = 0, keys, 0  # ranks that are left, the largest key has rank 0
    while True:
        cycles += ceil_div(high - low, LANES) + ROUND
        pivot = int(random.integers(low, high))
        if pivot == kept - 1:
            return cycles
        low, high = (pivot + 1, high) if pivot < kept - 1 else (low, pivot)


def worst_quick_select(keys: int) -> int:
    """The same where every pivot is the largest of many distinct keys that are left."""
    return sum(ceil_div(left, LANES) + ROUND for left in range(1, keys + 1))


def topk_rows(config: Config) -> Iterator[Row]:
    """Cycles by size, and what bounds them."""
    for keys, kept in SIZES:
        here = top_k_cycles(config, keys, kept)
        random = np.random.default_rng(keys + kept)
        mean = float(np.mean([quick_select(keys, kept, random) for _ in range(RUNS)]))
        yield Row(setting=f"{kept} of {keys:,} keys", published=mean, here=here, unit="cycles",
                  why=f"quick-select at {LANES} keys a cycle, mean of {RUNS} runs with random pivots; here six "
                      "counting passes of 4 bits and a filter always run, so the time is known before the keys are")
        yield Row(setting=f"{kept} of {keys:,} keys, worst pivots", published=worst_quick_select(keys), here=here,
                  unit="cycles", why="quick-select has no useful bound; radix selection takes as long for any keys")
    keys, _ = SIZES[2]
    stages = keys.bit_length() - 1
    yield Row(setting=f"sorting network for {keys:,} keys", published=keys // 4 * stages * (stages + 1),
              here=config.dim, unit="comparators",
              why="compare-exchanges of a bitonic network for all keys; here DIM comparisons with a prefix of the "
                  "threshold, used every cycle")


def _run(config: Config) -> list[Row]:
    return list(topk_rows(config))


STUDY = Study("Top-K engines: radix selection beside quick-select and sorting", "SpAtten, HPCA 2021, and its released "
              "latency model", "base", _run)
