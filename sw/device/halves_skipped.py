"""How many lower halves of keys a pass has left out, where probabilities decide: of its commands, as they ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gemmule.compiler.kernels.attention.halves.packed import LOWER
from gemmule.compiler.kernels.attention.halves.progressive import ProgressiveMapping
from gemmule.compiler.kernels.attention.shared import AttentionMapping
from gemmule.isa import Command, Unit
from gemmule.sim.result import Result
from gemmule.timing import Timing, ceil_div

__all__ = ["halves_skipped"]


def halves_skipped(attention: AttentionMapping, commands: Sequence[Command], registers_of: Mapping[str, int],
                   result: Result, pairs: int) -> int:
    """Packed rows over layers and KV heads that a pass behind ``pairs`` pairs of rows did not load.

    ``attention``: how it is cut in the program of ``commands``, whose base registers are ``registers_of`` by region.
    """
    if not isinstance(attention, ProgressiveMapping) or not pairs:
        return 0
    base, turns = registers_of[LOWER], ceil_div(2 * pairs, attention.turn)
    skipped, found = result.finish - result.issue <= Timing().load_zero, 0
    for at, command in enumerate(commands):
        if command.unit is Unit.LOAD and command.predicate and command.fields["base"] == base:
            times, fields = skipped[result.places == at], command.fields
            left = pairs - np.arange(len(times)) % turns * (attention.turn // 2) - fields.get("rows_offset", 0)
            found += int(np.clip(left, 0, fields["rows_cap"])[times].sum())
    return found
