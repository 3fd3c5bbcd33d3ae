"""Waits between the turns of a repeated body, found by running the program through the verifier.

A wait says how many commands back it reaches, so one that a later turn needs holds in every turn; in the first ones it
reaches back beyond the program's beginning and means none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.program import Registers
from gemmule.config import Config
from gemmule.isa import CONTROL, MAX_WAIT, TABLE_FIELDS, Command, COp, Unit, control_columns, disassemble, table_row
from gemmule.resolve import FAULTS
from gemmule.sim.verify.order import Order
from gemmule.sim.verify.state import FAULT, FINE, RACE

__all__ = ["place_turn_waits"]

_UNIT, _OP, _WAIT0 = (TABLE_FIELDS.index(name) for name in ("unit", "op", "wait_load"))
_TIMES = control_columns(COp.REPEAT)["times_cap"]


def place_turn_waits(commands: Sequence[Command], config: Config, launches: Iterable[Registers], *,
                     turns: int | None = None) -> list[Command]:
    """The commands with the waits that they lack for these launches; those that they carry stay.

    ``turns``: follow so many turns of each body at most, where later ones race in no other way; the whole program is
    then to be verified.

    Raises:
        CompileError: a command is wrong by itself: no wait helps.
    """
    found = list(commands)
    table = np.stack([table_row(command) for command in found])
    if turns is not None:
        loops = (table[:, _UNIT] == CONTROL) & (table[:, _OP] == COp.REPEAT)
        table[loops, _TIMES] = np.minimum(table[loops, _TIMES], turns)
    for registers in launches:
        for i, command in enumerate(registers.first):
            table[i] = table_row(command)
        _settle(table, found, config, registers)
    waits = table[:, _WAIT0:_WAIT0 + len(Unit)].tolist()
    return [command if command.unit == CONTROL else replace(
        command, waits={unit: row[unit] for unit in Unit if row[unit]}) for command, row in zip(found, waits)]


def _settle(table: np.ndarray, commands: Sequence[Command], config: Config, registers: Registers) -> None:
    """Put into ``table`` the waits that one launch lacks: the verifier names the first race, until it finds none.

    It ends, for each round waits for more than the one before.
    """
    while True:
        order = Order(config, registers.bases, registers.limits, registers.lengths)
        place, end, races = order.run(table)
        if end == FINE:
            return
        if end != RACE:
            why = FAULTS[order.fault] if end == FAULT else "it touches a place twice"
            raise CompileError(f"command {place} ({disassemble(commands[place])}) must be legal by itself, not: {why}")
        for unit, distance in races:
            have = int(table[place, _WAIT0 + unit]) or MAX_WAIT
            table[place, _WAIT0 + unit] = min(have, distance, MAX_WAIT)
