"""What a launch of the general program says beside its registers, in words that its first commands bring.

Halves: rows with logits, rows with their largest ones, rows with exponent sums, hidden rows that are stored, multiplier
and shift of the logits. Behind them words: by how many bytes each region that layers move through is displaced at
the first layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemmule.compiler.kernels.attention.batch import batch_words
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.config import Config
from gemmule.control import params, set_length
from gemmule.isa import PARAMS_WORDS, Command, Source
from gemmule.timing import ceil_div

__all__ = ["first_move", "launch_commands", "launch_words", "move_words", "set_answers"]

HALVES = (LengthReg.LOGIT_ROWS, LengthReg.TOP_ROWS, LengthReg.EXPONENT_ROWS, LengthReg.HIDDEN_ROWS, LengthReg.SCALE,
          LengthReg.SCALE + 1)
"""The length register that each half is for."""


def move_words(batch: int) -> int:
    """Regions that may be displaced: weights, parameters, the cache as it is and as it was, new rows by sequence."""
    return 4 + batch


def launch_words(batch: int) -> int:
    """Words of the parameter memory, in whole commands, before those of a batch's contexts."""
    return ceil_div(len(HALVES) // 2 + move_words(batch), PARAMS_WORDS) * PARAMS_WORDS


def _first(config: Config, batch: int) -> int:
    return config.parameter_words - batch_words(batch) - launch_words(batch)


def first_move(config: Config, batch: int) -> int:
    """Number of the word with the first displacement."""
    return _first(config, batch) + len(HALVES) // 2


def launch_commands(config: Config, batch: int, halves: Sequence[int], moves: Sequence[int]) -> list[Command]:
    """PARAMS with all of them; ``moves`` in bytes."""
    words = [low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=True)]
    words += [move & 0xFFFFFFFF for move in moves]
    words += [0] * (launch_words(batch) - len(words))
    first = _first(config, batch)
    return [params(first + at, *(word - (word >> 31 << 32) for word in words[at:at + PARAMS_WORDS]),
                   note="what this launch is for") for at in range(0, len(words), PARAMS_WORDS)]


def set_answers(config: Config, batch: int) -> list[Command]:
    """SET of the registers that say which answers are wanted; layers need them no more."""
    return [set_length(register, Source.HALF, index=2 * _first(config, batch) + i, note="what is wanted")
            for i, register in enumerate(HALVES)]
