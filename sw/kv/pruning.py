"""What a pruned cache keeps, and when it chooses: read from YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import yaml

from gemmule.compiler.ir.pages import Pages
from gemmule.compiler.kernels.attention.halves.packing import PAIRS, Halves, Packing
from gemmule.numerics import MOST_GUARDED
from gemmule.sw.errors import InputError
from gemmule.sw.limits import SCORES

__all__ = ["PAGES", "Pruning", "load_pruning", "pruning_of", "read_schedule"]


PAGES = (4, 8, 16, 32, 64)
HALVED = (Halves.VALUES.value, Halves.BOTH.value)
LEAST_BELOW = 0.01
MOST_PROBABILITY = 255
BY_PAGE = "pages", "chunks"
"""Scores of which a page is one of rows."""


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """A schedule of a pruned cache: selection at fixed positions, never in between; or by each row itself, in pages.
    Beside a selection, or alone, values are left out by probability.

    Raises:
        InputError: a number is out of range, or numbers contradict each other.
    """

    keep: float | int = 1.0
    """Of the cached rows: a share (up to 1), or a number of rows."""
    every: int = 32
    """Positions from one selection to the next: those that such a number divides, and the end of a prompt. Not of
    pages."""
    first: int = 4
    """Rows that are always kept: the first ones of the text (attention sinks)."""
    last: int = 32
    """The newest ones."""
    whole: int = 128
    """Rows up to which a text keeps all."""
    score: str = "attention"
    """One of :data:`gemmule.sw.limits.SCORES`."""
    page: int = 8
    """Rows of a page, where each row chooses pages; or of a chunk."""
    values: int | None = None
    """Least 8-bit probability, of 255 for a row's largest one, that meets a value: values that meet none are not
    loaded. None: all are."""
    four: float | None = None
    """Of the rows that are kept, the share that has only 4 bits: the least important ones."""
    halves: str | None = None
    """What has 4 bits then, one of :data:`HALVED`; by default values."""
    progressive: float | None = None
    """Largest probability of a row below which it reads all bits of keys, else 4: of all cached rows, or beside
    ``four`` of those that have values of 4 bits. None: all rows do."""

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise InputError(f"prune: score must be one of {', '.join(SCORES)}, not {self.score!r}")
        if isinstance(self.keep, bool) or not isinstance(self.keep, int | float):
            raise InputError(f"prune: keep must be a number, not {self.keep!r}: a share such as 0.5, or rows")
        if isinstance(self.keep, float) and not 0 < self.keep <= 1:
            raise InputError(f"prune: keep must be a share above 0 and up to 1.0, or a whole number of rows, not "
                             f"{self.keep}")
        if isinstance(self.keep, int) and self.keep < 1:
            raise InputError(f"prune: keep must be at least 1 row, not {self.keep}")
        for name, least, most in (("every", 1, 1 << 16), ("first", 0, MOST_GUARDED), ("last", 0, MOST_GUARDED),
                                  ("whole", 1, 1 << 16)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise InputError(f"prune: {name} must be a whole number from {least} to {most:,}, not {value!r}")
        if isinstance(self.page, bool) or self.page not in PAGES:
            raise InputError(f"prune: page must be one of {', '.join(map(str, PAGES))} rows, not {self.page!r}")
        if self.values is not None and (isinstance(self.values, bool) or not isinstance(self.values, int)
                                        or not 1 <= self.values <= MOST_PROBABILITY):
            raise InputError(f"prune: values must be a whole number from 1 to {MOST_PROBABILITY}, not {self.values!r}: "
                             "the least probability that counts, of 255")
        if self.values is not None and self.score in BY_PAGE:
            raise InputError(f"prune: values does not go with score: {self.score}: leave one out")
        if self.four is not None and (isinstance(self.four, bool) or not isinstance(self.four, int | float)
                                      or not 0 < self.four <= 1):
            raise InputError(f"prune: four must be a share above 0 and up to 1.0, not {self.four!r}: of the rows that "
                             "are kept, those that have 4 bits")
        if self.halves is not None and self.halves not in HALVED:
            raise InputError(f"prune: halves must be one of {', '.join(HALVED)}, not {self.halves!r}: what has 4 bits")
        if self.progressive is not None and (isinstance(self.progressive, bool) or not isinstance(
                self.progressive, int | float) or not LEAST_BELOW <= self.progressive <= 1):
            raise InputError(f"prune: progressive must be a probability from {LEAST_BELOW} to 1.0, not "
                             f"{self.progressive!r}: rows whose largest one is smaller read all bits of keys")
        if self.progressive is not None and (self.score != "attention" or self.values is not None):
            raise InputError("prune: progressive goes with score: attention, and without values: leave one out")
        if self.progressive is not None and self.halves == Halves.BOTH.value:
            raise InputError("prune: progressive reads lower halves of keys, which halves: both does not keep: take "
                             "halves: values, or leave progressive out")
        if self.four is not None and (self.score != "attention" or self.values is not None):
            raise InputError("prune: four goes with score: attention, which says what is important, and without "
                             "values: leave one out")
        if isinstance(self.keep, int) and self.keep < self.first + self.last:
            raise InputError(f"prune: keep must be at least first + last = {self.first + self.last} rows, not "
                             f"{self.keep}: keep more, or lower one of these")
        if self.score == "heavy" and self.last < self.every - 1:
            raise InputError(f"prune: last must be at least every - 1 = {self.every - 1} rows with score: heavy, not "
                             f"{self.last}: rows that are not counted yet are among the newest, which stay")
        if self.whole < self.first + self.last:
            raise InputError(f"prune: whole must be at least first + last = {self.first + self.last} rows, not "
                             f"{self.whole}")

    @cached_property
    def pages(self) -> Pages | None:
        """Of rows that choose pages."""
        if self.score != "pages":
            return None
        return Pages(page=self.page, keep=self.keep, first=self.first, last=self.last, whole=self.whole)

    @cached_property
    def chunks(self) -> Pages | None:
        """Of rows that go in chunks, at fixed positions."""
        if self.score != "chunks":
            return None
        return Pages(page=self.page, keep=self.keep, first=self.first, last=self.last, whole=self.whole)

    @property
    def always(self) -> tuple[int, int, int, int]:
        """What a selecting pass is compiled for: rows that are always kept, rows of a chunk, rows counted together."""
        return self.first, self.last, self.page if self.chunks else 0, self.counts

    @property
    def selects(self) -> bool:
        """Whether rows are chosen at fixed positions. Where values are left out, keeping all takes no choice."""
        return self.score != "pages" and not (self.values and isinstance(self.keep, float) and self.keep == 1)

    def rows(self, cached: int) -> int:
        """Of so many cached rows, those that are kept."""
        if self.chunks:
            return self.chunks.rows(cached)
        wanted = ceil(self.keep * cached) if isinstance(self.keep, float) else self.keep
        return min(cached, max(wanted, self.first + self.last))

    def pairs(self, cached: int) -> int:
        """Of so many cached rows, how many pairs are kept with 4 bits."""
        share = self.four or (1 if self.progressive else 0)
        return int(share * self.rows(cached)) // (2 * PAIRS) * PAIRS

    @property
    def four_of(self) -> Halves:
        """What has 4 bits in rows that have."""
        if self.progressive:
            return Halves.SPLIT if self.four else Halves.PLANES
        return Halves(self.halves or HALVED[0])

    @property
    def packing(self) -> Packing | None:
        """What programs are compiled for; None: no row has 4 bits of anything."""
        return Packing(self.four_of, self.progressive or 0.0) if self.progressive or self.four else None

    def stand(self, cached: int) -> int:
        """Rows of a cache that those kept of so many take: with both halves two of 4 bits take one."""
        pairs = self.pairs(cached)
        return self.rows(cached) - 2 * pairs + self.four_of.stand(pairs)

    def spared(self, cached: int, row: int) -> int:
        """Bytes of the rows that those kept of so many take, of ``row`` bytes each, which no pass reads: half of the
        values of 4 bits where keys have 8.
        """
        pairs = self.pairs(cached)
        return (self.four_of.stand(pairs) - pairs) * row // 2 if self.four_of.packed[1] else 0

    @property
    def counts(self) -> int:
        """Rows of an interval, whose probabilities are counted together; 0: none are."""
        return self.every if self.score == "heavy" else 0

    def counted(self, cached: int) -> int:
        """Of so many cached rows, those whose probabilities running sums have: whole intervals."""
        return cached // self.every * self.every

    def selecting(self, cached: int, counted: int, observed: int) -> Sequence[int]:
        """First rows of the passes that choose among so many rows, of ``observed`` rows each; sums have the rows up to
        ``counted``.
        """
        if self.score == "heavy":
            return range(counted, self.counted(cached), observed)
        return [] if self.score == "none" else [max(0, cached - observed)]

    def due(self, cached: int, since: int | None, *, entered: bool) -> bool:
        """Whether it is time to choose, with so many cached rows; ``since``: how many there were the last time.

        ``entered``: text was just passed that no step has generated, such as a prompt.
        """
        if cached <= self.whole or cached == since or cached < self.counts:
            return False
        return cached % self.every == 0 or (entered and since is None)

    def ahead(self, position: int) -> int:
        """Positions behind this one up to the next selection."""
        return self.every - 1 - position % self.every


def read_schedule(path: Path) -> Any:
    """What the YAML file of a schedule holds.

    Raises:
        InputError: it cannot be read, or is no YAML.
    """
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"--prune {path} cannot be read: {why}") from None
    except yaml.YAMLError as error:
        raise InputError(f"--prune {path} is no YAML: {' '.join(str(error).split())}") from None


def load_pruning(path: Path) -> Pruning:
    """A schedule from a YAML file.

    Raises:
        InputError: the file cannot be read, or says something else.
    """
    return pruning_of(read_schedule(path), f"--prune {path}")


def pruning_of(found: Any, where: str) -> Pruning:
    """A schedule of what YAML holds.

    Raises:
        InputError: it holds something else.
    """
    names = [field.name for field in fields(Pruning)]
    if isinstance(found, dict) and "values" in found and "keep" not in found:
        if others := sorted(set(map(str, found)) - {"values"}):
            known = others[0] in names
            raise InputError(f"{where} has no key {'keep' if known else repr(others[0])}: " + (
                f"{others[0]} is of rows that are kept" if known else f"keys are {', '.join(names)}"))
        found = {**found, "keep": 1.0}
    if not isinstance(found, dict) or "keep" not in found:
        what = ", ".join(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise InputError(f"{where} must be keys with keep or values among them, for a decoder, not {what}: such as "
                         "`keep: 0.5`")
    if unknown := sorted(set(map(str, found)) - set(names)):
        raise InputError(f"{where} has no key {unknown[0]!r}: keys are {', '.join(names)}")
    if "halves" in found and "four" not in found:
        raise InputError(f"{where}: halves says what has 4 bits, and no row has: add four, or leave halves out")
    at_fixed, named = found.get("score") != "pages", set(map(str, found))
    if (found.get("score") not in BY_PAGE and "page" in named) or (not at_fixed and "every" in named):
        raise InputError(f"{where}: page is of score: {' and '.join(BY_PAGE)} alone, and every is not of pages: " + (
            "leave page out" if at_fixed else "leave every out, since rows choose at every step"))
    try:
        return Pruning(**found)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
