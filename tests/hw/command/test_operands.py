"""The RTL's hulls and claims, written by hand, against the table of operands: every operation and set of flags."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.command import resolve as resolve_module
from gemmule.isa import NUM_BASES, Unit, encode
from gemmule.operands import STREAM_UNIT, STREAMS, Memory
from gemmule.resolve import FAULTS
from gemmule.sim.verify.access import accesses
from gemmule.terms import OUT

from ...classes import DRAM_BYTES, Drawn, classes, draw
from ...thinned import some
from ..bench import run_bench
from .resolve_commands import resolved

SEED = 5
CONFIGS = {
    "edge": load_config("edge"),
    # As many and as small banks as there can be: a row more or less is often a bank more or less.
    "narrow": Config(dim=4, bus_bytes=4, spm_kib=2, spm_banks=16, acc_kib=4, acc_banks=16, stat_rows=16,
                     select_keys=128, list_entries=256),
}
EACH = 4
"""Commands of each class."""


def claims_of(drawn: Drawn, config: Config) -> list[int]:
    """Ports by stream, from the rows that the table names: banks of the hull of each operand."""
    found = [0, 0, 0]
    unit = int(drawn.out[OUT["unit"]])
    spm, acc = config.spm_banks, config.acc_banks
    first_port = {(Memory.SPM, False): 0, (Memory.SPM, True): spm,
                  (Memory.ACC, False): 2 * spm, (Memory.ACC, True): 2 * spm + acc}
    bank_rows = {Memory.SPM: config.spm_bank_rows, Memory.ACC: config.acc_bank_rows}
    for access in accesses(drawn.row, drawn.out, config):
        if not access.operand.stream:
            continue
        claim = STREAMS.index(access.operand.stream) - STREAM_UNIT.index(unit)
        low, high = int(access.spans[0, 0]), int(access.spans[-1, 1]) - 1
        for write in (False, True) if access.operand.both_ports else (access.write,):
            for bank in range(low // bank_rows[access.memory], high // bank_rows[access.memory] + 1):
                found[claim] |= 1 << first_port[access.memory, write] + bank
    return found


def wrong_claims(config: Config) -> list[str]:
    """Commands whose claims differ, or that fault."""
    random = np.random.default_rng(SEED)
    drawn = [draw(config, random, unit, op, flags) for unit, op, flags in classes(config) for _ in range(EACH)]
    dut, found = resolve_module.Resolve(config=config), []

    async def bench(ctx):
        async for i in resolved(ctx, dut, [encode(one.command) for one in drawn], limits=[DRAM_BYTES] * NUM_BASES):
            one = drawn[i]
            streams = STREAM_UNIT.count(one.command.unit)
            seen = [int(ctx.get(dut.claims[i])) for i in range(streams)]
            fault = FAULTS[ctx.get(dut.fault)]
            if fault != "none" or seen != claims_of(one, config)[:streams]:
                found.append(f"{one.command}: {fault}, claims {seen}, table {claims_of(one, config)}")

    run_bench(dut, bench)
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_claims_are_those_of_the_table(name):
    assert wrong_claims(CONFIGS[name]) == []


def mutant(name: str, old: str, new: str) -> ModuleType:
    """``hw/command/<name>.py`` with one text replaced."""
    path = Path(str(resolve_module.__file__)).with_name(f"{name}.py")
    text = path.read_text()
    assert text.count(old) == 1, old
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(f"wrong_{name}", loader=None))
    exec(compile(text.replace(old, new), str(path), "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(("name", "old", "new", "unit"), some([
    ("hulls", "spans.inner2, self.plane2)", "spans.inner2)", Unit.VECTOR),  # a result's second plane
    ("spans", "Mux(means.transposed_a, m_group, k_group)", "k_group", Unit.MATRIX),
    ("banks", "Mux(means.rope, angles, 0)", "0", Unit.VECTOR),
    ("spans", "Mux(means.transposed_b, k_group, n_group)", "n_group", Unit.MATRIX),
], 2))
def test_a_wrong_hull_is_noticed(monkeypatch, name, old, new, unit):
    monkeypatch.setattr(resolve_module, name.capitalize(), getattr(mutant(name, old, new), name.capitalize()))
    found = wrong_claims(CONFIGS["narrow"])
    assert found
    assert all(f"unit=<Unit.{unit.name}" in text for text in found)
