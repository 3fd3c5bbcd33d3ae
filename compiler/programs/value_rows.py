"""How many rows of values a pass has loaded, where probabilities decide: of its commands, as they ran."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.attention.values import ValuesMapping
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.isa import Command, Unit
from gemmule.sim.result import Result
from gemmule.timing import Timing

__all__ = ["value_rows"]


def value_rows(program: ModelProgram, result: Result, cached: int, commands: Sequence[Command] = ()) -> int:
    """Over layers and KV heads, a constant prefix left out, behind ``cached`` rows.

    ``commands``: of the program that ran, where it is the general one beside ``program``.
    """
    node, layers = program.graph.attentions[0], len(program.graph.attentions)
    every, attention = cached - node.prefix, program.choice.mappings[0].attention
    if not isinstance(attention, ValuesMapping):
        return every * node.kv_heads * layers
    return _gathered(attention, program.registers_of[CACHE], commands or program.commands, result, every,
                     Timing.of(program.config).load_zero)


def _gathered(attention: ValuesMapping, base: int, commands: Sequence[Command], result: Result, every: int,
              skipped: int) -> int:
    """Rows of the gathers that were not skipped, which take longer than ``skipped`` cycles."""
    places = [at for at, command in enumerate(commands)
              if command.unit is Unit.LOAD and command.predicate and command.fields["base"] == base]
    pieces = len(places) and len({commands[at].fields["rows_offset"] for at in places})
    ran, found = result.finish - result.issue > skipped, 0
    for number, at in enumerate(places):
        left = max(0, every - number // pieces % attention.parts * attention.part)
        turns = min(attention.part, left + attention.turn - 1) // attention.turn
        times = ran[result.places == at]
        if not turns or not len(times):
            continue
        turn = np.arange(len(times)) % turns
        fields = commands[at].fields
        rows = np.clip(left - turn * attention.turn - fields["rows_offset"], 0, fields["rows_cap"])
        found += int(rows[times].sum())
    return found
