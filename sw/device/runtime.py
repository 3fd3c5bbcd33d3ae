"""A compiled decoder on a device: place it in DRAM, run passes over new rows, keep the accepted ones."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.cache_list import nobody
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.program import NO_DRAM, Program, Registers, Step
from gemmule.compiler.programs.chosen.pages_program import PagesProgram
from gemmule.compiler.programs.greedy_loop import GreedyLoop
from gemmule.compiler.programs.halves.packed_program import PackedProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.moves import Moves
from gemmule.compiler.programs.prefill import PrefillProgram
from gemmule.compiler.programs.selecting import Selection
from gemmule.compiler.programs.step_program import StepProgram
from gemmule.sim.result import Result
from gemmule.sw.device.ahead import Ahead
from gemmule.sw.device.backends import Device, DeviceError
from gemmule.sw.device.choosing import DeviceChooser
from gemmule.sw.device.forward import Caches, append_rows, forward_rows, logit_scale, prompt_launches
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.slots import HiddenSlots
from gemmule.sw.device.timeline import Earlier
from gemmule.sw.device.value_reads import add_launch
from gemmule.sw.kv.chosen_pages import PagesKV
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.kv.paged import NobodyKV, PagedKV, PagePool
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.kv.saved_values import ValueReads
from gemmule.sw.kv.selected import SelectedKV
from gemmule.sw.kv.text import TextKV
from gemmule.sw.kv.values import ValuesKV
from gemmule.sw.step import KV, Forward, Hidden, LayerRange, Want

__all__ = ["PAGE", "TARGET", "LoadedModel"]

PAGE = 32
"""Rows of a page."""
TARGET = "target"
"""Name of the model that verifies."""


class LoadedModel:
    """One model's program, weights and KV cache on a device.

    The KV cache is contiguous in DRAM: the rows of a pass take the slots behind the cached ones, so a rollback is
    nothing but a smaller length. Of a tree, :meth:`commit` moves the accepted path together.
    """

    def __init__(self, name: str, program: ModelProgram, dram: np.ndarray, device: Device,
                 loop: GreedyLoop | None = None, step: StepProgram | None = None,
                 prefill: PrefillProgram | None = None, narrow: Sequence[ModelProgram] = (),
                 ahead: Ahead | None = None, selection: Selection | None = None, values: int = 0,
                 sampled: ModelProgram | None = None, page: int = PAGE) -> None:
        """``dram`` (uint8): what stands in DRAM from the program's ``base_address`` on; all but ``step`` too.

        ``step``: a program of this draft's loop and of a target that is on the device. ``prefill``: takes long chains
        of rows that are not answered; ``narrow``: take fewer rows or shorter contexts, the best first. ``ahead``: has
        the target's answers of a launch of ``step``; the target's own model has it, too. ``selection``: what chooses
        rows of the cache. ``values``: least probability that meets a value, by the programs; 0: all values are loaded.
        ``sampled``: of passes that leave rows for another network and give back logits.
        ``page``: rows of a page, where the cache is a pool.
        """
        self.loop, self.step, self.prefill, self.narrow, self.ahead = loop, step, prefill, narrow, ahead
        self.selection, self.displacement, self.values, self.sampled = selection, 0, values, sampled
        self.pairs = 0
        """Rows of 4 bits with which the cache begins."""
        self.packing = program.packing if isinstance(program, PackedProgram) else None
        self.value_reads = ValueReads() if values or (self.packing and self.packing.halves.lower) else None
        """Of passes under the model's own name, shared by all copies."""
        self.name = name
        self.tokens: np.ndarray | None = None
        """Of each logit, where they are not those of all tokens in order, int64 [logits]."""
        self.owners: dict[int, object] = {}
        """Whose rows each sequence's cache has, shared by all copies: texts that take turns notice each other."""
        self.program = program
        self.further: list[int] = [0]
        """Bytes from the caches of a launch's first sequences to those of others, as many at a time."""
        self.device = device
        self.ledger: Ledger | None = None
        general = program.general
        self.slots = HiddenSlots(general.slots, general.batch * general.max_rows) if general else None
        """Shared by all copies."""
        pool = program.pool
        self.pages = PagePool(pool, min(page, pool), self.first + (program.batch > 1)) if pool else None
        """Shared by all copies, and by all sequences."""
        device.write_dram(program.base_address, dram.tobytes())
        if step:
            device.write_dram(step.program_address, step.image)

    def charging(self, ledger: Ledger | None, name: str | None = None) -> Self:
        """The same model, whose launches are charged to ``ledger``; ``name``: as another one's, such as a draft's."""
        made = copy.copy(self)
        made.ledger, made.name = ledger, name or self.name
        return made

    def in_cache_of(self, other: LoadedModel) -> Self:
        """This model, whose passes go on in the cache of ``other``: both notice whose rows are in it."""
        self.owners, self.further = other.owners, other.further
        return self

    def choosing(self, tokens: np.ndarray | None) -> Self:
        """This model, whose logits are those of these tokens; None: of all."""
        self.tokens = tokens
        return self

    def displaced(self, by: int, pairs: int = 0) -> Self:
        """The same model, whose passes find their cache so many bytes further on; its first ``pairs`` rows have 4 bits.
        """
        made = copy.copy(self)
        made.displacement, made.pairs = by, pairs
        return made

    def spread(self, displacements: Sequence[int]) -> Self:
        """This model, with more sequences than a launch takes: of the ones behind the first, as many at a time, the
        caches stand so many bytes further on. A pass takes a launch for each of those that have rows.
        """
        self.further = [0, *displacements]
        for by in displacements:
            self.fill_cache(by)
        return self

    def fill_cache(self, by: int) -> None:
        """Constant rows, where there are any, so many bytes further on."""
        if self.program.graph.prefix:
            address, size = self.program.symbols[CACHE]
            self.device.write_dram(address + by, self.device.read_dram(address, size))

    def of(self, sequence: int) -> Self:
        """The same model, whose launches take this sequence and those that go with it."""
        by = self.further[sequence // self.program.batch] if len(self.further) > 1 else 0
        return self.displaced(by) if by else self

    def local(self, sequence: int) -> int:
        """Its number among those that go in a launch with it."""
        return sequence % self.program.batch if len(self.further) > 1 else sequence

    @property
    def kv_bytes(self) -> int:
        """Of all caches."""
        return len(self.further) * self.program.symbols[CACHE][1]

    def kv(self, sequence: int = 0, *, kept: bool = True, pruning: Pruning | None = None) -> ContiguousKV | PagedKV:
        """An empty cache for a sequence; its operations are charged like passes. Of a pool as many as are wanted.

        Not ``kept``: no row stays from pass to pass. ``pruning``: the cache of the only sequence, by this schedule.

        Raises:
            ValueError: a schedule, and no programs that choose rows.
        """
        if pruning and pruning.pages:
            if not isinstance(self.program, PagesProgram):
                raise ValueError(f"{self.name} chooses no pages of its cache: place it with the schedule")
            return PagesKV(self, pruning.pages, self.room)
        if pruning and (pruning.values or 0) != self.values:
            raise ValueError(f"{self.name} leaves out other values than the schedule: place it with the schedule")
        if pruning and pruning.packing != self.packing:
            raise ValueError(f"{self.name} has other rows of 4 bits than the schedule: place it with the schedule")
        if pruning and pruning.values and not pruning.selects:
            return ValuesKV(self, pruning.values, self.room)
        if pruning:
            if self.selection is None:
                raise ValueError(f"{self.name} chooses no rows of its cache: place it with the schedule")
            return SelectedKV(self, DeviceChooser(self, self.selection), pruning, self.room)
        if self.pages:
            return PagedKV(self, self.pages, self.room, kept=kept)
        return ContiguousKV(self, self.room, sequence, kept=kept)

    @property
    def first(self) -> int:
        """Constant rows with which every sequence's cache begins. Positions here count tokens, which stand behind them;
        those of programs and of the interpreter count both."""
        return self.program.graph.prefix

    @property
    def room(self) -> int:
        """Tokens of a sequence at most."""
        return self.program.max_positions - self.first

    @property
    def logit_scale(self) -> float:
        """``real = number * scale`` of its logits."""
        return logit_scale(self.program.graph)

    # -- passes

    def forward(self, rows: Rows, want: Want | int | None = None, kv: Caches | None = None, *,
                layers: Sequence[LayerRange] | None = None) -> Forward:
        """Run new rows of each sequence behind its cached ones; long chains in several launches.

        Args:
            rows: by token or by hidden row, those of a sequence one behind the other.
            want: what is wanted back, by default the greedy tokens of all rows; a number: those of so many last rows. A
                launch without answered rows skips the head.
            kv: the caches, of which each of a batch has one; new rows are appended. Without any the first row of each
                sequence is right behind its cached ones, as its position says.
            layers: ranges that the rows go through, one launch for each; by default all layers.

        Raises:
            DeviceError: the launch ended with a device fault.
            CompileError: the program does not do it; ``compile_network(.., general=True)`` makes one that does.
            ValueError: the rows do not fit the context or the program.
        """
        want = want if isinstance(want, Want) else Want(last=want)
        found = self._ahead(rows, want, kv) if layers is None else None
        if found is None:
            first = kv[0].sequence if isinstance(kv, Sequence) else 0
            found = forward_rows(self.of(first), rows, want, kv, layers)
        for caches in (kv, *(part.kv for part in layers or ())):
            append_rows(caches, rows, self.local)
        return found if self.tokens is None else found.named(self.tokens)

    def prompt(self, rows: Rows, kv: KV) -> Forward:
        """Keys and values of a prompt's rows of one sequence of a batch; the others take no part.

        Raises:
            DeviceError: a launch ended with a device fault.
            ValueError: there is no program for prompts, or the rows do not fit the context.
        """
        results = [self.of(kv.sequence).run(prefill, step) for prefill, _, step in prompt_launches(self, rows, kv)]
        kv.append(len(rows))
        return Forward([], tuple(results))

    def slots_of(self, hidden: Hidden) -> np.ndarray:
        """Where hidden rows stand, for :meth:`gemmule.compiler.ir.Rows.entering`  # int64 [rows].

        Raises:
            ValueError: others have taken their place.
        """
        if self.slots is None:
            raise ValueError(f"{self.name} has no hidden rows: compile with general=True")
        return self.slots.check(hidden)

    def stream(self, slots: Sequence[int]) -> np.ndarray:
        """Hidden rows that passes have left in these slots, as the host reads them  # int16 [rows, columns].

        Raises:
            ValueError: the model leaves none.
        """
        if self.program.general is None:
            raise ValueError(f"{self.name} has no hidden rows: compile with general=True")
        columns = self.program.graph.nodes[0].columns
        return self.program.general.read_hidden(self.device.read_dram, np.asarray(slots), columns)

    def greedy(self, kv: KV, tokens: Sequence[int], steps: int) -> Forward:
        """The greedy tokens of so many steps behind ``tokens``, which are passed behind the cached rows; all in one
        launch but for tokens before the last one.

        Where there is a program for it, the launch also has the target's pass over the last token and the drafted ones;
        the target answers from it when it is asked for them.

        Raises:
            DeviceError: the launch ended with a device fault.
            ValueError: the model has no such program, or the steps do not fit the context.
        """
        if self.loop is None:
            raise ValueError(f"{self.name} takes one greedy step a launch: make the session with launch='draft'")
        *lacking, token = tokens
        if len(lacking) > (self.step is not None):
            self.forward(Rows.chain(lacking, kv.length), Want(last=0), kv)
            lacking = []
        if self.step is None:
            result = self._launched(self.loop, self.loop.step(token, self.first + kv.length, steps))
            self._charge(self.name, self.loop, result, passes=steps)
            found = Forward(self.loop.read_tokens(self.device.read_dram, steps), (result,))
        else:
            found = self._draft_and_verify(self.step, token, kv.length + len(lacking), steps, *lacking)
        kv.append(len(lacking) + steps)
        return found

    def _draft_and_verify(self, step: StepProgram, token: int, position: int, steps: int,
                          before: int | None = None) -> Forward:
        """``before``: the token before, if this model's cache lacks its row."""
        program = step.caught_up if before is None else step
        result = self._launched(program, program.step(token, self.first + position, steps, before))
        drafting = program.draft_cycles(result)
        self._charge(TARGET, program, result, earlier=Earlier(self.name, drafting, steps))
        drafted, verified = program.read_tokens(self.device.read_dram, steps)
        if self.ahead:
            self.ahead.put([token, *drafted], position, Forward(verified, (result,), others=drafting))
        return Forward(drafted, (result,), others=int(result.cycles) - drafting)

    def _ahead(self, rows: Rows, want: Want, kv: Caches | None) -> Forward | None:
        """The answers, where a launch of another model had this pass, too."""
        if self.ahead is None or self.name != TARGET:
            return None
        cached = kv.length if isinstance(kv, TextKV) else int(rows.positions[0])
        return self.ahead.take(rows, want, cached)

    # -- the cache

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
        """Keep of the rows that the last pass added at ``position`` those of the accepted path, one behind the other.

        Returns cycles, host work included; so do the following.

        Raises:
            DeviceError: the launch ended with a device fault.
        """
        if path == list(range(len(path))):  # in place, however many launches they came by
            return 0
        program = self.program.commit
        if program is None:
            raise ValueError(f"{self.name}: this program moves no cache rows: keep the path with the "
                             "cache's commit, or propose one path a step")
        step = program.step(self.first + position, path, self.local(sequence))
        return self.cost(self.of(sequence).run(program, step, passes=0)) if step else 0

    def copy_rows(self, source: tuple[int, int], target: tuple[int, int], rows: int) -> int:
        """``rows`` rows from one (sequence, first row) to another, in all layers."""
        copies, model = self._moves().copy, self.of(source[0])
        if model.displacement != self.of(target[0]).displacement:
            raise ValueError(f"{self.name}: rows are copied among the sequences of a launch, not from {source[0]} to "
                             f"{target[0]}")
        source, target = ((self.local(sequence), self.first + row) for sequence, row in (source, target))
        return self.cost(model.run(copies, copies.step(source, target, rows), passes=0))

    def gather_rows(self, sequence: int, slots: np.ndarray) -> int:
        """Rows ``slots`` of a sequence to its first ones  # int [kept], or [layers, KV heads, kept]."""
        gather = self._moves().gather
        constant = np.broadcast_to(np.arange(self.first), (*slots.shape[:-1], self.first))
        kept = np.concatenate([constant, slots + self.first], axis=-1)
        return self.cost(self.of(sequence).run(gather, gather.step(self.local(sequence), kept), passes=0))

    def _moves(self) -> Moves:
        moves = self.program.moves
        if moves is None:
            raise ValueError(f"{self.name}: copies and gathers of cached rows need their programs: compile with "
                             "general=True")
        return moves

    def relisted(self, sequence: int, kept: Sequence[int]) -> None:
        """Rows of a list stay, in this order: the host's own affair, for a launch says which rows there are."""

    def forked(self, sequence: int, new: int) -> None:
        """Another sequence's list has the same rows."""

    def nobody(self, sequence: int) -> NobodyKV:
        """What stands for the cache of a sequence without a text, where caches go by list."""
        return NobodyKV(self, nobody(self.first), sequence)

    # -- launches

    def cost(self, result: Result) -> int:
        """Cycles of a launch, the host's work for it included."""
        return int(result.cycles) + self.device.config.host.launch_cycles

    def run(self, program: Program, step: Step, *, passes: int = 1) -> Result:
        """One launch with a pass, or, without ``passes``, with what moves rows of the cache."""
        result = self._launched(program, step)
        self._charge(self.name, program, result, passes=passes)
        if self.value_reads and self.name == TARGET:
            add_launch(self.value_reads, self.program, program, step, result, self.pairs)
        return result

    def _launched(self, program: Program, step: Step) -> Result:
        for address, content in step.inputs:
            self.device.write_dram(address, content.tobytes())
        self.device.load(program.launch(self.name, NO_DRAM, self._registers(program, step)))
        result = self.device.run()
        if result.fault:
            raise DeviceError(f"{self.name}: device fault {result.fault} at command {result.fault_index}")
        return result

    def charge(self, program: Program, result: Result, *, passes: int = 1) -> None:
        """A launch that somebody else has run for this model."""
        self._charge(self.name, program, result, passes=passes)

    def _registers(self, program: Program, step: Step) -> Registers:
        """Of a launch on the cache that passes of this model find."""
        registers = step.registers
        if self.pairs and isinstance(program, PackedProgram):
            registers = program.packed(registers, self.pairs)
        return registers.displaced(program.symbols[CACHE], self.displacement) if self.displacement else registers

    def _charge(self, model: str, program: Program, result: Result, *, passes: int = 1,
                earlier: Earlier | None = None) -> None:
        """The only place where any is."""
        if self.ledger:
            self.ledger.launch(model, result, program.commands, passes=passes, earlier=earlier,
                               answers=not isinstance(program, PrefillProgram))
