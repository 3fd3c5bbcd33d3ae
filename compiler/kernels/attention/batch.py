"""The sequences of a batch: the length of each one's cache comes with the launch, in the program's first commands."""

from __future__ import annotations

from collections.abc import Sequence

from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.config import Config
from gemmule.control import params, set_length
from gemmule.isa import PARAMS_WORDS, Command, Source
from gemmule.timing import ceil_div

__all__ = ["batch_words", "contexts", "set_context"]


def batch_words(batch: int) -> int:
    """Words of the parameter memory, at its end, that hold the contexts: two a word, whole commands."""
    return 0 if batch == 1 else ceil_div(ceil_div(batch, 2), PARAMS_WORDS) * PARAMS_WORDS


def _first(config: Config, batch: int) -> int:
    return config.parameter_words - batch_words(batch)


def contexts(config: Config, lengths: Sequence[int]) -> list[Command]:
    """PARAMS with the cached rows of each sequence, uint16; none for a single one, whose register holds them."""
    words, first = batch_words(len(lengths)), _first(config, len(lengths))
    halves = [*lengths, *([0] * (2 * words - len(lengths)))]
    found = [low | high << 16 for low, high in zip(halves[::2], halves[1::2])]
    return [params(first + at, *(word - (word >> 31 << 32) for word in found[at:at + PARAMS_WORDS]),
                   note="cached rows of the sequences") for at in range(0, words, PARAMS_WORDS)]


def set_context(config: Config, batch: int, sequence: int) -> Command:
    """SET of the context's register to a sequence's."""
    return set_length(LengthReg.CONTEXT, Source.HALF, index=2 * _first(config, batch) + sequence,
                      note=f"cached rows of sequence {sequence}")
