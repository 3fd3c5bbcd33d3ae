"""The stream of a launch: the commands of its image in the order in which they run, with the registers of that turn.

Control commands and repeated bodies are followed here, once for all that looks at a launch command by command.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.control import Local, new_local
from gemmule.isa import CONTROL, TABLE_FIELDS, decode_table
from gemmule.resolve import config_vector
from gemmule.sim.timing.engine import count_commands, resolve_program
from gemmule.sim.timing.program import PLACE, STREAM
from gemmule.terms import OUT_FIELDS
from gemmule.timing import Timing

__all__ = ["Stream", "Streams", "stream_of"]

_UNIT = TABLE_FIELDS.index("unit")


@dataclass(frozen=True, eq=False)
class Stream:
    """The commands of one launch."""

    table: np.ndarray
    """The image, decoded: a row a place."""
    good: int
    """Commands before one that faults; all of them without a fault."""
    entries: np.ndarray
    """int64[commands, 4]: columns of :data:`gemmule.sim.timing.program.STREAM`. With control commands in the image
    nothing stands behind a command that faults but what resolve may take."""
    resolved: np.ndarray
    """int64[commands, OUT_FIELDS]: up to the command that faults; zeros behind it."""

    @property
    def count(self) -> int:
        """Commands."""
        return len(self.entries)

    @property
    def places(self) -> np.ndarray:
        """Place in the image of each command of ``entries``."""
        return self.entries[:, PLACE]

    @property
    def units(self) -> np.ndarray:
        """Unit of each command of ``entries``; control commands have a number of their own."""
        return self.table[self.places, _UNIT]


class Streams:
    """Follows launches of one device; the parameter memory persists between them."""

    def __init__(self, config: Config, timing: Timing | None = None) -> None:
        self._config = config_vector(config)
        self._behind = (timing or Timing.of(config)).resolve
        self.local: Local = new_local(config)
        """Registers of the last launch, as it left them."""

    def follow(self, table: np.ndarray, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray) -> Stream:
        """The stream of a launch of a decoded image with the host's registers (int64, bytes)."""
        registers, count = (bases, limits, lengths, self._config), len(table)
        behind = count
        if (table[:, _UNIT] == CONTROL).any():
            words, behind = self.local.words.copy(), self._behind
            count = int(count_commands(table, *registers, behind, self.local))
            self.local.words[:] = words
        entries = np.zeros((count, len(STREAM)), dtype=np.int64)
        resolved = np.zeros((count, len(OUT_FIELDS)), dtype=np.int64)
        good, end = resolve_program(table, *registers, behind, self.local, entries, resolved)
        return Stream(table, int(good), entries[:end], resolved[:end])


def stream_of(image: bytes, config: Config, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray) -> Stream:
    """The stream of one launch on a device after power-up."""
    return Streams(config).follow(decode_table(image), bases, limits, lengths)
