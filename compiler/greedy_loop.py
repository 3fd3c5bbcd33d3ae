"""Greedy decoding of several tokens in one launch: a pass over one row is the body, its token the next one's input.

The device takes the token as an index of the embedding (``ARGMAX`` leaves it in entry 0 of the index list), so no host
stands between two tokens. A stop token does not end the launch; the host cuts what follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmule.compiler.decoder import bounds_of, emit_decoder, lay_out
from gemmule.compiler.decoder_plan import DecoderPlan, plan_decoder
from gemmule.compiler.decoder_program import (
    BASE_ANGLES,
    BASE_KV_NEW,
    BASE_LOGITS,
    LEN_CONTEXT,
    LEN_TOTAL,
    REGIONS,
    DecoderProgram,
)
from gemmule.compiler.errors import CompileError
from gemmule.compiler.program import NO_DRAM, Registers
from gemmule.compiler.qmodel import QuantModel
from gemmule.compiler.schedule import place_waits
from gemmule.compiler.stream import LoadStream
from gemmule.compiler.turns import place_turn_waits
from gemmule.config import Config
from gemmule.control import repeat, set_displacement, set_length
from gemmule.isa import MAX_LENGTH, Command, Length, MoveFlag, Source, Unit, encode_program
from gemmule.sim.simulator import Simulator

__all__ = ["GreedyLoop", "compile_greedy_loop"]

BASE_EMBEDDING = 21
"""The whole embedding; register 0 is the row of the first token."""
LEN_STEPS, LEN_LATER = 6, 7
"""Length registers: steps; 0 in the first step, 1 in later ones."""
ONCE = 2
"""Commands before the body: the first embedding row, and the norms' gamma."""


@dataclass(frozen=True, kw_only=True)
class GreedyLoop(DecoderProgram):
    """A :class:`DecoderProgram` of one row that goes on with its own tokens; ``read_tokens`` tells all of them."""

    def registers(self, tokens: Sequence[int], position: int, logit_rows: int | None = None, *,
                  steps: int = 1) -> Registers:
        """Registers of a launch of ``steps`` steps that begins with one token at ``position``.

        Raises:
            CompileError: as of a single step; no step, or more than positions.
        """
        if steps < 1 or position + steps > self.max_positions:
            raise CompileError(f"position + steps must be from 1 to {self.max_positions}, not {position} + {steps}: "
                               "shorten the context")
        if logit_rows not in (None, 1):
            raise CompileError(f"every step of a loop picks a token: logit_rows must be 1, not {logit_rows}")
        made = super().registers(tokens, position, 1)
        made.lengths[LEN_STEPS] = steps
        made.bases[BASE_EMBEDDING], made.limits[BASE_EMBEDDING] = self.symbols["embedding"]
        return made

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        return [self.registers([0], position, steps=steps) for position, steps in (
            (0, 1), (0, min(4, self.max_positions)), (self.max_positions - 1, 1),
            (max(0, self.max_positions - 4), min(4, self.max_positions)))]


def compile_greedy_loop(model: QuantModel, config: Config, base_address: int = 0) -> GreedyLoop:
    """Compile a quantised decoder to one program that takes any number of greedy steps.

    The embedding of a step's token holds back the loads behind it, so where it stands among the first weights is
    chosen by the cycles that launches at both ends of the context take.

    Raises:
        CompileError: the model does not fit the configuration; the message says what to change.
    """
    plan = plan_decoder(model.shape, config, 1)
    stream = LoadStream(model, config, plan)
    commands = emit_decoder(model, config, plan, stream, tokens=True)
    first = 1 + next(i for i, command in enumerate(commands) if command.note.startswith("qkv 0"))
    last = next(i for i, command in enumerate(commands) if command.unit is not Unit.LOAD)
    found = [_compiled(model, config, base_address, plan, stream, commands, at) for at in range(first, last + 1)]
    program = min(found, key=_cost)
    program.put(program.dram, "program", np.frombuffer(program.image, dtype=np.uint8))
    return program.verified(*program.extremes())


def _cost(program: GreedyLoop) -> int:
    """Cycles of launches at the ends of the context."""
    device, cycles = Simulator(program.config, dram_bytes=1), 0
    for registers in program.extremes():
        device.load(program.launch("", NO_DRAM, registers))
        cycles += device.run(timing_only=True).cycles
    return cycles


def _compiled(model: QuantModel, config: Config, base_address: int, plan: DecoderPlan, stream: LoadStream,
              commands: list[Command], ahead: int) -> GreedyLoop:
    """The program with the embedding of a step's token behind ``ahead`` commands."""
    shape, first = model.shape, commands[0]
    following = replace(
        first, note="embedding of the last token", flags=frozenset({int(MoveFlag.INDEXED)}),
        fields={**first.fields, "base": BASE_EMBEDDING, "stride": first.fields["bytes"], "last_index": shape.vocab - 1,
                "rows_reg": LEN_LATER, "rows_offset": 0})
    straight = place_waits([*commands[:ahead], following, *commands[ahead:]], config,
                           {**bounds_of(shape, plan), LEN_LATER: (0, 1)})
    step = [
        set_length(LEN_LATER, amount=1),
        *(set_length(register, Source.LENGTH, register, amount=1) for register in (LEN_CONTEXT, LEN_TOTAL)),
        *(set_displacement(base, Source.DISPLACEMENT, base, amount=amount) for base, amount in (
            (BASE_ANGLES, 4 * shape.head_dim), (BASE_KV_NEW, 2 * shape.width), (BASE_LOGITS, 2)))]
    body = [*straight[ONCE:], *step]
    program = [*straight[:ONCE], repeat(len(body), Length(MAX_LENGTH, LEN_STEPS), note="tokens"), *body]
    regions = lay_out(model, config, stream, encode_program(program), 2 * shape.max_positions)
    made = GreedyLoop(
        config=config, image=encode_program(program), commands=tuple(program), base_address=base_address,
        size=regions.size, symbols=regions.symbols(base_address), bases=REGIONS, shape=shape, dram=regions.image(),
        max_rows=1, max_positions=shape.max_positions, logit_scale=model.logit_scale, logit_pieces=(), plan=plan,
        tokens=True)
    program = place_turn_waits(program, config, made.extremes())
    return replace(made, commands=tuple(program), image=encode_program(program))
