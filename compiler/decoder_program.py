"""A compiled decoder: its DRAM content and the registers of a pass over new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.checkpoint import DecoderShape
from gemmule.compiler.decoder_plan import DecoderPlan
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir.rows import Rows
from gemmule.compiler.program import Program, ReadDram, Registers, Step
from gemmule.numerics import join_planes
from gemmule.timing import ceil_div

__all__ = [
    "BASE_ANGLES", "BASE_KV", "BASE_KV_NEW", "BASE_LOGITS", "BASE_STATIC", "LEN_CONTEXT", "LEN_FIRST_LOGIT",
    "LEN_LOGITS", "LEN_ROWS", "LEN_TOTAL", "REGIONS", "DecoderProgram",
]

BASE_STATIC, BASE_ANGLES, BASE_KV, BASE_KV_NEW, BASE_LOGITS = 16, 17, 18, 19, 20
"""Base registers; 0..15 are the embedding rows of the new tokens."""
REGIONS = {
    BASE_STATIC: "static", BASE_ANGLES: "angles", BASE_KV: "kv", BASE_KV_NEW: "kv", BASE_LOGITS: "logits"}
LEN_ROWS, LEN_CONTEXT, LEN_TOTAL, LEN_LOGITS, LEN_FIRST_LOGIT = 1, 2, 3, 4, 5
"""Length registers: new rows M, positions before them, their sum; rows with logits, the first of them."""


@dataclass(frozen=True, kw_only=True)
class DecoderProgram(Program):
    """One program for 1..``max_rows`` new rows at any position.

    Regions: ``static`` (weights and parameters), ``embedding``, ``angles``, ``kv``, ``logits``; ``dram`` (uint8) is
    what stands in them, from ``base_address`` on.
    """

    shape: DecoderShape
    dram: np.ndarray
    max_rows: int
    max_positions: int
    logit_scale: float
    logit_pieces: tuple[tuple[int, int], ...]
    """(first column, columns) of each piece in which logits lie in DRAM: [piece][row][columns]."""
    plan: DecoderPlan
    tokens: bool
    """The device stores greedy tokens instead of logits."""

    @property
    def kv_row_bytes(self) -> int:
        """Keys and values of one position in one layer."""
        return 2 * self.shape.width

    @property
    def embedding_row_bytes(self) -> int:
        return self.symbols["embedding"][1] // self.shape.vocab

    @property
    def angle_row_bytes(self) -> int:
        return self.symbols["angles"][1] // self.max_positions

    def registers(self, tokens: Sequence[int], position: int, logit_rows: int | None = None) -> Registers:
        """Registers of a launch with new ``tokens`` at ``position``.

        ``logit_rows``: how many of the last rows get logits, by default all; with 0 (prefill) the
        head's weights are not even loaded.

        Raises:
            CompileError: too many tokens or positions, or an unknown token.
        """
        rows = len(tokens)
        if not 1 <= rows <= self.max_rows:
            raise CompileError(f"a launch takes 1 to {self.max_rows} tokens, not {rows}: launch again")
        wanted = rows if logit_rows is None else logit_rows
        if not 0 <= wanted <= rows:
            raise CompileError(f"logit_rows must be from 0 to {rows} tokens, not {logit_rows}")
        if position < 0 or position + rows > self.max_positions:
            raise CompileError(
                f"position + tokens must be from 0 to {self.max_positions}, not {position} + {rows}: "
                "shorten the context")
        if min(tokens) < 0 or max(tokens) >= self.shape.vocab:
            raise CompileError(f"tokens must be from 0 to {self.shape.vocab - 1}, not {list(tokens)}")
        (angles, angle_bytes), (kv, kv_bytes) = self.symbols["angles"], self.symbols["kv"]
        embedding, size = self.symbols["embedding"][0], self.embedding_row_bytes
        seen, stored = position * self.angle_row_bytes, position * self.kv_row_bytes
        return self.place(
            windows={i: (embedding + size * token, size) for i, token in enumerate(tokens)}
            | {BASE_ANGLES: (angles + seen, angle_bytes - seen), BASE_KV_NEW: (kv + stored, kv_bytes - stored)},
            lengths={LEN_ROWS: rows, LEN_CONTEXT: position, LEN_TOTAL: position + rows, LEN_LOGITS: wanted,
                     LEN_FIRST_LOGIT: rows - max(wanted, 1)})

    commit: None = None
    """There is no program that keeps a path of a tree: rows are seen in order."""
    batch: int = 1

    def step(self, rows: Rows, wanted: int, cached: Sequence[int] | None = None,
             places: np.ndarray | None = None) -> Step:
        """:meth:`registers`; there is nothing to write.

        Raises:
            CompileError: as those; the rows are no chain, or not behind as many ``cached`` ones as positions before.
        """
        if cached is not None and list(cached) != [int(rows.positions[0])] or rows.hidden is not None:
            raise CompileError("rows of this program must be tokens right behind the cached ones, not behind "
                               f"{cached}: import the model, and compile it with general=True")
        if not np.array_equal(rows.mask, np.tri(len(rows), dtype=bool)):
            raise CompileError("rows must be a chain, not a tree: this program sees them in order, propose one path a "
                               "step")
        return Step(self.registers(rows.tokens.tolist(), int(rows.positions[0]), wanted))

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold: rows, position, rows with logits."""
        most, last = [0] * self.max_rows, self.max_positions - 1
        return [self.registers(tokens, position, wanted)
                for tokens, position in ((most, 0), (most, self.max_positions - len(most)), ([0], last))
                for wanted in (None, 0)]

    def read_logits(self, read_dram: ReadDram, rows: int) -> np.ndarray:
        """int16 logits [rows, vocab] of the last launch, read with ``read_dram(address, bytes)``.

        ``rows`` is the launch's number of rows with logits.
        """
        if self.tokens:
            raise CompileError("this program stores tokens, not logits: compile it with tokens=False")
        found = np.zeros((rows, self.shape.vocab), dtype=np.int16)
        for first, columns in self.logit_pieces if rows else ():
            groups = ceil_div(columns, self.config.dim)
            size = 2 * groups * self.config.dim
            raw = self.read(read_dram, "logits", 2 * first * self.max_rows, rows * size)
            planes = raw.reshape(rows, groups, 2, self.config.dim)
            values = join_planes(planes[:, :, 0], planes[:, :, 1]).reshape(rows, -1)
            found[:, first:first + columns] = values[:, :columns]
        return found

    def read_tokens(self, read_dram: ReadDram, wanted: int) -> list[int]:
        """Greedy token of each row with logits; ties go to the lowest index."""
        if not self.tokens:
            return [int(i) for i in np.argmax(self.read_logits(read_dram, wanted), axis=1)] if wanted else []
        return self.read(read_dram, "logits", 0, 2 * wanted).view("<u2").tolist()

    def roofline_bytes(self, rows: int, position: int) -> int:
        """Bytes a launch must move: weights, parameters, KV, inputs and outputs (program excluded)."""
        kv = self.shape.layers * self.kv_row_bytes * (position + rows)
        row = self.embedding_row_bytes + self.angle_row_bytes + 2 * (1 if self.tokens else self.shape.vocab)
        return self.symbols["static"][1] + kv + rows * row
