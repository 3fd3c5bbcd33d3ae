"""How many rows of values a pass has left out, where probabilities decide: of its commands, as they ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gemmule.compiler.kernels.attention.shared import CACHE, AttentionMapping
from gemmule.compiler.kernels.attention.values import ValuesMapping
from gemmule.isa import Command, Unit
from gemmule.sim.result import Result
from gemmule.timing import Timing

__all__ = ["values_skipped"]


def values_skipped(attention: AttentionMapping, commands: Sequence[Command], registers_of: Mapping[str, int],
                   result: Result, cached: int) -> int:
    """Rows over layers and KV heads that a pass behind ``cached`` rows did not gather.

    ``attention``: how it is cut in the program of ``commands``, whose base registers are ``registers_of`` by region.
    """
    if not isinstance(attention, ValuesMapping):
        return 0
    base, every = registers_of[CACHE], cached - attention.prefix
    places = [at for at, command in enumerate(commands)
              if command.unit is Unit.LOAD and command.predicate and command.fields["base"] == base]
    pieces = len({commands[at].fields["rows_offset"] for at in places})
    skipped, found = result.finish - result.issue <= Timing().load_zero, 0
    for number, at in enumerate(places):
        left = max(0, every - number // pieces % attention.parts * attention.part)
        turns = min(attention.part, left + attention.turn - 1) // attention.turn
        times = skipped[result.places == at]
        if not turns or not times.any():
            continue
        turn, fields = np.arange(len(times)) % turns, commands[at].fields
        rows = np.clip(left - turn * attention.turn - fields["rows_offset"], 0, fields["rows_cap"])
        found += int(rows[times].sum())
    return found
