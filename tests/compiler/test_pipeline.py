"""The list of passes: what holds after each is checked, and a fault planted behind any of them ends the compilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gemmule.compiler.errors import CheckError, CompileError
from gemmule.compiler.kernels.contents import Constant
from gemmule.compiler.kernels.virtual import At, VirtualCommand
from gemmule.compiler.passes import pipeline
from gemmule.compiler.passes.entry import Lowered
from gemmule.compiler.passes.fit import run_fitting
from gemmule.compiler.passes.pipeline import PASSES, Pass, finish, run
from gemmule.compiler.programs.linker import Linker
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.pass_entry import PassEntry
from gemmule.config import load_config
from gemmule.isa import COMMAND_BYTES, Unit
from tests.compiler.integer_networks import Sizes, random_network

CONFIG = load_config("edge")
NETWORK = random_network(Sizes(family="gpt2", hidden=16, inner=24, heads=2, kv_heads=2, head_dim=8, layers=3, vocab=24,
                               positions=16), 1)
Made = PassEntry[ModelProgram]


def new_entry() -> Made:
    return PassEntry(ModelProgram, NETWORK, CONFIG, rows=2, batch=1, context=16, tokens=True)


def compiled() -> tuple[Made, ModelProgram]:
    entry = new_entry()
    run_fitting(entry)
    linker = Linker(CONFIG)
    linker.add(entry)
    linker.share(entry.lowered)
    linker.reserve("cache", entry.layout.size)
    return entry, linker.link(entry, linker.table(0))


def outside(entry: Made) -> None:
    """A row behind its buffer."""
    part = entry.lowered.layers[0][0]
    at = next(i for i, item in enumerate(part) if isinstance(item, VirtualCommand) and item.unit is Unit.MATRIX)
    item = part[at]
    assert isinstance(item, VirtualCommand)
    row = item.fields["b_row"]
    assert isinstance(row, At)
    part[at] = replace(item, fields={**item.fields, "b_row": row + row.buffer.rows})


def left_out(entry: Made) -> None:
    """A product is lost."""
    items = entry.scheduled.items
    at = next(i for i, item in enumerate(items) if isinstance(item, VirtualCommand) and item.unit is Unit.MATRIX)
    entry.scheduled = replace(entry.scheduled, items=[*items[:at], *items[at + 1:]])


def on_another(entry: Made) -> None:
    """The residual stream on the rows of its norm."""
    buffers = {buffer.name: buffer for buffer in entry.placed}
    entry.placed = {**entry.placed, buffers["residual"]: entry.placed[buffers["layers.0.norm1"]]}


def without_last(entry: Made) -> None:
    entry.emitted = entry.emitted[:-1]


def too_far(entry: Made) -> None:
    at = next(i for i, command in enumerate(entry.commands) if command.waits)
    entry.commands[at] = replace(entry.commands[at], waits={Unit.LOAD: 1000})


def overlapping(entry: Made) -> None:
    symbols = entry.program.symbols
    entry.program = replace(entry.program, symbols=symbols | {"tokens": symbols["weights"]})


def no_waits(entry: Made) -> None:
    entry.program = entry.program.written([replace(command, waits={}) for command in entry.program.commands])


def twice(entry: Made) -> None:
    entry.operators = [*entry.operators, entry.operators[0]]


def no_mapping(entry: Made) -> None:
    entry.candidates = []


FAULTS: dict[str, tuple[Callable[[Made], None], str]] = {
    "fuse": (twice, "embedding belongs to two operators"),
    "map": (no_mapping, "there is no mapping"),
    "lower": (outside, "b_row is row"),
    "schedule": (left_out, "commands of operation"),
    "allocate": (on_another, "shares row"),
    "emit": (without_last, "commands of"),
    "waits": (too_far, "waits as no command can"),
    "link": (overlapping, "begins at"),
    "turns": (no_waits, "no longer waits"),
}


def test_every_pass_says_what_it_does_and_what_holds() -> None:
    assert [step.name for step in PASSES] == [*FAULTS, "verify"]
    assert all(step.does and step.holds for step in PASSES)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_behind_a_pass_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broken pass leaves is found behind it, not later: the message says after which, and where."""
    plant, message = FAULTS[name]

    def broken(step: Pass) -> Pass:
        def do(entry: Any) -> None:
            step.run(entry)
            plant(entry)
        return replace(step, run=do) if step.name == name else step

    monkeypatch.setattr(pipeline, "PASSES", tuple(map(broken, PASSES)))
    with pytest.raises(CheckError, match=f"after {name} of a pass it must hold that .*{message}.*compiler is wrong"):
        compiled()


def test_a_program_that_is_finished_stays_as_it_is() -> None:
    _, program = compiled()
    assert finish(program, PassEntry.turns) == program


def test_passes_of_a_stretch() -> None:
    entry = new_entry()
    run(entry, "fuse", "map")
    assert entry.candidates
    assert not hasattr(entry, "lowered")


class _Content:
    """So many bytes."""

    def __init__(self, size: int) -> None:
        self.size = self.key = size

    def groups(self, dim: int) -> Sequence[Constant]:
        return []


def test_a_linker_lays_out_once() -> None:
    """In the order of the first mention, as large as anyone asks; what stands already keeps its place."""
    entry, program = compiled()
    linker = Linker(CONFIG, {"cache": (1 << 16, 640)})
    linker.add(entry)
    for name, size in (("a", 10), ("b", 100), ("a", 90), ("cache", 1000)):
        linker.reserve(name, size)
    table, size = linker.table(256, 512), COMMAND_BYTES * len(program.commands)
    assert table.symbols["cache"] == (1 << 16, 640)
    assert table.symbols["program"] == (768, size)
    assert table.symbols["a"][1] == 90
    assert table.symbols["a"][0] >= 768 + size
    assert table.symbols["b"][0] >= table.symbols["a"][0] + 90
    assert table.base_address == 256
    assert table.size >= 512 + size + 190


def test_a_linker_refuses_contents_at_two_places() -> None:
    linker, content = Linker(CONFIG), _Content(8)
    linker.share(Lowered(before=[], sizes={"static": 16}, constants={"static": [(0, content)]}))  # type: ignore[list-item]
    with pytest.raises(CompileError, match="must have the same static"):
        linker.share(Lowered(before=[], constants={"static": [(8, content)]}))  # type: ignore[list-item]
