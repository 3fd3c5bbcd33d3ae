"""How attention of rows that choose pages is cut for a device, and the numbers that a launch brings for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention, Pages
from gemmule.compiler.kernels.attention.shared import AttentionMapping
from gemmule.compiler.kernels.virtual import Bank, Buffer
from gemmule.compiler.place import round_up
from gemmule.config import Config
from gemmule.control import params
from gemmule.isa import PARAMS_WORDS, Command
from gemmule.timing import ceil_div

__all__ = ["ROW_HALVES", "PagesMapping", "page_half", "page_words"]

ROW_HALVES = ("candidates", "chosen", "chosen rows", "others", "all")
"""What a launch says of each row: pages among which it chooses, those it chooses, their rows, the rows that it always
sees, and all that it sees. Behind the last row stand the most candidates, and settling pages and their rows."""


@dataclass(frozen=True, kw_only=True)
class PagesMapping(AttentionMapping):
    """Pages of a cache, and how many rows are in flight."""

    pages: Pages
    ring: int
    """Buffers for the keys and values of a row and KV head."""
    prefix: int
    """Constant rows."""

    @property
    def keep(self) -> bool:
        return True

    @property
    def joined(self) -> int:
        return 0

    @property
    def others(self) -> int:
        """Cached and new rows that a row always sees, at most."""
        pages = self.pages
        return min(self.context - self.prefix, pages.sinks * pages.page + pages.last + pages.page - 1)

    @cached_property
    def chosen(self) -> int:
        """Pages that a row chooses, at most."""
        return max(self.pages.chosen(seen) for seen in range(1, self.context - self.prefix + 1))

    @property
    def candidates(self) -> int:
        """Pages among which it does, at most."""
        return self.pages.candidates(self.context - self.prefix)

    @property
    def every(self) -> int:
        """Pages of the cache that are ever candidates, or before these."""
        return max(1, self.pages.settled(self.context - self.prefix))

    @property
    def most(self) -> int:
        """Rows that a row sees."""
        return self.others + self.chosen * self.pages.page

    def settling(self, rows: int) -> int:
        """Pages that become candidates in a pass, at most."""
        return ceil_div(rows, self.pages.page)

    def listed(self, rows: int) -> int:
        """Entries of the host's lists."""
        return self.settling(rows) * (1 + self.pages.page) + rows * self.others

    def moved(self, node: Attention, dim: int, rows: int) -> int:
        return max(self.others, self.chosen, self.settling(rows) * self.pages.page)

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        share = node.heads // node.kv_heads
        groups = ceil_div(node.head_dim, dim)
        return self.ring * (2 * groups * self.most + ceil_div(self.most, dim) * share) \
            + groups * self.candidates + 2 * ceil_div(self.candidates, dim) * rows

    def buffers(self, node: Attention, dim: int, preload: int) -> tuple[Buffer, ...]:
        """Keys, then values, of each place of the ring."""
        rows = 2 * ceil_div(node.head_dim, dim) * round_up(self.most, preload)
        return tuple(Buffer(f"rows of pages {i}", rows, Bank.STREAM, preload) for i in range(self.ring))

    def check(self, node: Attention, config: Config, rows: int) -> None:
        """Raise CompileError where the device or the network cannot, or what is kept does not fit."""
        pages, share = self.pages, node.heads // node.kv_heads
        if node.block:
            raise CompileError("rows that choose pages need exact attention, not online: import the network with "
                               "--attention exact")
        if 2 * pages.page % config.dim:
            raise CompileError(f"a page must be a multiple of {config.dim // 2} rows, half of the device's "
                               f"{config.dim} lanes, not {pages.page}")
        if pages.last < rows:
            raise CompileError(f"the newest rows (last) must be at least the {rows} of a pass, not {pages.last}: raise "
                               "last, or use fewer rows")
        if rows > 1 and share > 1 and rows * share % config.preload:
            raise CompileError(f"rows times heads that share a KV head must be a multiple of {config.preload}, not "
                               f"{rows * share}: use an even number of rows")
        need = 2 * rows + self.listed(rows) + self.ring * self.chosen * (1 + pages.page)
        for name, most, what in (("list_entries", need, config.list_entries),
                                 ("select_keys", self.candidates, config.select_keys)):
            if most > what:
                raise CompileError(f"{name} must be at least {most} for pages of {self.context} positions, not {what}: "
                                   "keep fewer rows, use a shorter context, or raise it")
        scores = self.ring * share * (ceil_div(self.most, config.dim) + 2 * ceil_div(node.head_dim, config.dim))
        if scores > config.acc_rows or self.scratchpad_rows(node, config.dim, rows) > config.spm_rows * 7 // 12:
            raise CompileError(f"the {self.most} rows that a row sees must fit 7/12 of the scratchpad and the "
                               f"accumulator of {config.name}: keep fewer rows, use a shorter context, or larger "
                               "memories (spm_kib, acc_kib)")


def _commands(rows: int) -> int:
    """PARAMS commands of a launch."""
    return ceil_div(ceil_div(len(ROW_HALVES) * rows + 3, 2), PARAMS_WORDS)


def page_half(config: Config, rows: int, number: int) -> int:
    """Half of the parameter memory of one of a launch's numbers."""
    return 2 * (config.parameter_words - _commands(rows) * PARAMS_WORDS) + number


def page_words(config: Config, rows: int, numbers: Sequence[int]) -> tuple[Command, ...]:
    """PARAMS with a launch's numbers (:data:`ROW_HALVES` of each of ``rows`` rows, and three), its first commands."""
    words = np.zeros((_commands(rows) * PARAMS_WORDS, 2), dtype=np.int64)
    words.reshape(-1)[:len(numbers)] = numbers
    joined = (words[:, 0] | words[:, 1] << 16).tolist()
    first = config.parameter_words - len(joined)
    return tuple(params(first + at, *joined[at:at + PARAMS_WORDS], note="pages")
                 for at in range(0, len(joined), PARAMS_WORDS))
