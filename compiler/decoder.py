"""From a quantised decoder to one program: plan, stream, emit, place waits.

Program order is dispatch order. A load is emitted as soon as the commands that free its rows
are, so the device prefetches a whole ring ahead; ``place_waits`` then adds what the order needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gemmule.compiler.checkpoint import DecoderShape
from gemmule.compiler.decoder_plan import DecoderPlan, plan_decoder
from gemmule.compiler.decoder_program import (
    BASE_KV_NEW,
    BASE_LOGITS,
    LEN_CONTEXT,
    LEN_FIRST_LOGIT,
    LEN_LOGITS,
    LEN_ROWS,
    LEN_TOTAL,
    REGIONS,
    DecoderProgram,
)
from gemmule.compiler.footprints import Bounds
from gemmule.compiler.layout import Regions, pack_angles, pack_planes
from gemmule.compiler.place import round_up
from gemmule.compiler.qmodel import Norm, QuantLayer, QuantModel
from gemmule.compiler.quantize import ROPE_SHIFT
from gemmule.compiler.schedule import place_waits
from gemmule.compiler.stream import Chunk, LoadStream, Part
from gemmule.config import Config
from gemmule.isa import (
    ArgmaxFlag,
    ColumnFlag,
    Command,
    Dyn,
    Length,
    MatrixFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Unit,
    VOp,
    encode_program,
)
from gemmule.operands import GAMMA_ROWS
from gemmule.timing import ceil_div

__all__ = ["DecoderProgram", "bounds_of", "compile_decoder", "emit_decoder", "lay_out"]

FIRST_CHUNKS = 4
"""Chunks emitted ahead of the first product: dispatch must reach it before its weights do."""


class _Emitter:
    """Emits the commands of one model in program order."""

    def __init__(self, model: QuantModel, config: Config, plan: DecoderPlan, stream: LoadStream, tokens: bool) -> None:
        self.model, self.plan, self.stream, self.tokens = model, plan, stream, tokens
        self.dim, self.row, self.ring = config.dim, plan.row, plan.slots("ring")
        self.commands: list[Command] = []
        self.done: set[str] = {""}
        self.emitted = self.streamed = self.used = self.products = 0
        self.new = Length(plan.rows, LEN_ROWS)

    def _pump(self) -> None:
        """Emit the loads whose rows are free."""
        ahead = min(len(self.ring), FIRST_CHUNKS + 2 * self.used)
        while self.emitted < len(self.stream.loads):
            load = self.stream.loads[self.emitted]
            if load.after not in self.done or (load.weights and self.streamed - self.used >= ahead):
                return
            self.commands.append(load.command)
            self.streamed += load.weights
            self.emitted += 1

    def _mark(self, label: str) -> None:
        self.done.add(label)
        self._pump()

    def _add(self, unit: Unit, note: str, **fields: Any) -> None:
        self.commands.append(Command.make(unit, note=note, **fields))

    def _vector(self, op: VOp, note: str, **fields: Any) -> None:
        self._add(Unit.VECTOR, note, **({"op": op, "m": self.new} | fields))

    def _accumulator(self) -> int:
        """First row of the next accumulator slot; neighbours lie in different banks."""
        slot = self.plan.accumulators[self.products % len(self.plan.accumulators)]
        self.products += 1
        return slot

    def _norm(self, note: str, norm: Norm, index: int) -> None:
        plan, row, hidden = self.plan, self.row, self.model.shape.hidden
        source = {"src0": row["residual"], "src0_stride": 2 * plan.rows, "n": hidden}
        self._vector(VOp.NORM_STAT, f"{note}: mean square", mult=norm.eps_mult, shift=norm.eps_shift, **source)
        gamma = row["gamma"] + index * GAMMA_ROWS * ceil_div(hidden, self.dim)
        self._vector(VOp.NORM_APPLY, f"{note}: scale", src1=gamma, dst=row["normed"], dst_stride=plan.rows,
                     shift=norm.shift, **source)

    def _product(self, chunk: Chunk, operand: int, depth: int, **fields: Any) -> Iterator[tuple[Part, int]]:
        """Multiply ``operand`` by the next chunk; yields its parts with their accumulator rows."""
        index, rows, acc = self.used, self.plan.rows, self._accumulator()
        slot = self.ring[index % len(self.ring)]
        names = "+".join(part.name for part in chunk.parts)
        self._add(Unit.MATRIX, f"{chunk.label}: {names}", **({
            "a_row": operand, "a_stride": rows, "b_row": slot, "b_stride": chunk.depth, "c_row": acc,
            "c_stride": rows, "m": self.new, "n": chunk.columns, "k": depth} | fields))
        self.used += 1
        self._mark(f"chunk {index}")
        for part in chunk.parts:
            yield part, acc + part.group * rows

    def _requant(self, note: str, part: Part, source: int, dst: int, stride: int, *flags: RequantFlag,
                 **fields: Any) -> None:
        self._vector(VOp.REQUANT, note, src0=source, src0_stride=self.plan.rows, src1=part.parameter, dst=dst,
                     dst_stride=stride, n=part.columns, flags=(RequantFlag.COLUMN, *flags), **fields)

    def _residual(self, chunk: Chunk, operand: int, depth: int) -> None:
        rows = self.plan.rows
        for part, source in self._product(chunk, operand, depth):
            self._requant(f"{chunk.label}: add to residual", part, source,
                          self.row["residual"] + part.source * 2 * rows, 2 * rows, RequantFlag.RESIDUAL)

    def _qkv(self, chunk: Chunk) -> None:
        """q to its rows; k (rotated) and v behind the context's rows in the cache."""
        plan, row, shape, head = self.plan, self.row, self.model.shape, self.model.shape.head_dim // self.dim
        for part, source in self._product(chunk, row["normed"], shape.hidden):
            column = part.source + (shape.width // self.dim if part.name == "v" else 0)
            place: dict[str, Any] = {
                "dst": row["kv"] + column * shape.max_positions, "dyn": (Dyn.DST, LEN_CONTEXT, 1)}
            stride = shape.max_positions
            if part.name == "v":
                self._requant(f"{chunk.label}: v to cache", part, source, stride=stride, **place)
                continue
            if part.name == "q":
                place, stride = {"dst": row["q"] + part.source * plan.rows}, plan.rows
            self._vector(VOp.ROPE, f"{chunk.label}: rotate {part.name}", src0=source, src0_stride=plan.rows,
                         src1=part.parameter, aux=row["angles"], period=head.bit_length() - 1,
                         shift2=ROPE_SHIFT, dst_stride=stride, n=part.columns, flags=(ColumnFlag.COLUMN,),
                         **place)

    def _attention(self, index: int, layer: QuantLayer) -> None:
        """Heads in flight together: products QK QK, softmax, products PV PV."""
        plan, row, shape, rows = self.plan, self.row, self.model.shape, self.plan.rows
        head, positions = shape.head_dim // self.dim, shape.max_positions
        total = Length(positions, LEN_TOTAL)
        for first in range(0, shape.heads, plan.flight):
            heads = range(first, min(first + plan.flight, shape.heads))
            scores = [self._accumulator() for _ in heads]
            for h, acc in zip(heads, scores):
                self._add(Unit.MATRIX, f"scores {index}.{h}", a_row=row["q"] + h * head * rows, a_stride=rows,
                          b_row=row["kv"] + h * head * positions, b_stride=positions, c_row=acc, c_stride=rows,
                          m=self.new, n=total, k=shape.head_dim, flags=(MatrixFlag.B_TRANSPOSED,))
            for h, acc in zip(heads, scores):
                mult, shift = (int(v) for v in layer.score[h])
                fields = {"src0": acc, "src0_stride": rows, "n": total, "mult": mult, "shift": shift,
                          "context": h - first, "flags": (SoftmaxFlag.CAUSAL,)}
                self._vector(VOp.SOFTMAX_MAX, f"softmax {index}.{h}: maximum", **fields)
                self._vector(VOp.SOFTMAX_EXP, f"softmax {index}.{h}: probabilities",
                             dst=row[f"probabilities{h - first}"], dst_stride=rows, **fields)
            contexts = [self._accumulator() for _ in heads]
            for h, acc in zip(heads, contexts):
                values = row["kv"] + (shape.width // self.dim + h * head) * positions
                self._add(Unit.MATRIX, f"context {index}.{h}", a_row=row[f"probabilities{h - first}"], a_stride=rows,
                          b_row=values, b_stride=positions, c_row=acc, c_stride=rows, m=self.new,
                          n=shape.head_dim, k=total, flags=(MatrixFlag.A_UNSIGNED,))
            for h, acc in zip(heads, contexts):
                mult, shift = (int(v) for v in layer.context[h])
                self._vector(VOp.REQUANT, f"context {index}.{h}: normalise", src0=acc, src0_stride=rows,
                             dst=row["context"] + h * head * rows, dst_stride=rows, n=shape.head_dim, mult=mult,
                             shift=shift, context=h - first, flags=(RequantFlag.ROW,))
        size = 2 * shape.width
        self._add(Unit.STORE, f"new keys and values {index}", base=BASE_KV_NEW,
                  offset=index * positions * size, stride=size, bytes=size, row=row["kv"], row_stride=1,
                  block_stride=positions, rows=self.new, dyn=(Dyn.SRC0, LEN_CONTEXT, 1))
        self._mark(f"attention {index}")

    def _mlp(self, index: int, layer: QuantLayer, chunks: list[Chunk]) -> None:
        """Activation by byte table; when gated, times up."""
        row, rows = self.row, self.plan.rows
        self._add(Unit.VECTOR, f"activation table {index}", op=VOp.TABLE, src0=row[f"parameters{index % 2}"])
        for chunk in chunks:
            for part, source in self._product(chunk, row["normed"], self.model.shape.hidden):
                inner, note = row["inner"] + part.source * rows, f"{chunk.label}: {part.name}"
                if part.name == "gate" or layer.gate is None:
                    self._requant(note, part, source, inner, rows, RequantFlag.LOOKUP)
                    continue
                up, (mult, shift) = row["up"] + part.source * rows, layer.product
                self._requant(note, part, source, up, rows)
                self._vector(VOp.PRODUCT, f"{chunk.label}: gate * up", src0=inner, src0_stride=rows, src1=up,
                             aux=rows, dst=inner, dst_stride=rows, n=part.columns, mult=mult, shift=shift)

    def _head(self, chunks: list[Chunk]) -> None:
        """Logits of the wanted rows, chunk by chunk through two staging buffers."""
        row, rows = self.row, self.plan.rows
        wanted = Length(rows, LEN_LOGITS)
        for number, chunk in enumerate(chunks):
            for part, source in self._product(chunk, row["normed"], self.model.shape.hidden, m=wanted,
                                              dyn=(Dyn.SRC0, LEN_FIRST_LOGIT, 1)):
                stage, size = row[f"logits{number % 2}"], 2 * round_up(part.columns, self.dim)
                self._requant(f"{chunk.label}: logits", part, source, stage, 2 * rows, RequantFlag.WIDE,
                              m=wanted)
                if self.tokens:
                    self._add(Unit.SELECT, f"best so far, to {part.source * self.dim + part.columns}", op=SOp.ARGMAX,
                              src0=stage, src0_stride=2 * rows, first=part.source * self.dim, m=wanted,
                              n=part.columns, flags=(ArgmaxFlag.CONTINUE,) if part.source else ())
                    continue
                self._add(Unit.STORE, f"logits from {part.source * self.dim}", base=BASE_LOGITS,
                          offset=2 * part.source * self.dim * rows, stride=size, bytes=size, row=stage,
                          row_stride=1, block_stride=rows, rows=wanted)

    def _tokens(self) -> None:
        """The greedy token of each wanted row, 16 bits each."""
        stage = self.row["logits0"]
        self._add(Unit.SELECT, "tokens", op=SOp.LIST_STORE, dst=stage, n=Length(self.plan.rows, LEN_LOGITS))
        self._add(Unit.STORE, "tokens", base=BASE_LOGITS, bytes=2 * self.plan.rows, row=stage, block_stride=1,
                  rows=Length(1, LEN_LOGITS))

    def emit(self) -> list[Command]:
        """All commands in program order, without waits."""
        shape, layers = self.model.shape, self.stream.layers
        self._pump()
        for index, layer in enumerate(self.model.layers):
            chunks = layers[index]
            self._norm(f"attention norm {index}", layer.attention_norm, 2 * index)
            for chunk in chunks["qkv"]:
                self._qkv(chunk)
            self._attention(index, layer)
            for chunk in chunks["o"]:
                self._residual(chunk, self.row["context"], shape.width)
            self._norm(f"mlp norm {index}", layer.mlp_norm, 2 * index + 1)
            self._mlp(index, layer, chunks["mlp"])
            for chunk in chunks["down"]:
                self._residual(chunk, self.row["inner"], shape.inner)
            self._mark(f"layer {index}")
        self._norm("final norm", self.model.norm, 2 * shape.layers)
        self._head(layers[-1]["head"])
        if self.tokens:
            self._tokens()
        return self.commands


def bounds_of(shape: DecoderShape, plan: DecoderPlan) -> Bounds:
    """What the length registers of a launch may hold."""
    return {LEN_ROWS: (1, plan.rows), LEN_CONTEXT: (0, shape.max_positions - 1), LEN_TOTAL: (1, shape.max_positions),
            LEN_LOGITS: (0, plan.rows), LEN_FIRST_LOGIT: (0, plan.rows - 1)}


def emit_decoder(model: QuantModel, config: Config, plan: DecoderPlan, stream: LoadStream, *,
                 tokens: bool) -> list[Command]:
    """All commands of a pass in program order, without waits."""
    return _Emitter(model, config, plan, stream, tokens).emit()


def lay_out(model: QuantModel, config: Config, stream: LoadStream, image: bytes, answers: int) -> Regions:
    """DRAM of a decoder: program, weights, inputs, the cache, and ``answers`` bytes of logits or tokens."""
    shape = model.shape
    regions = Regions(config)
    regions.put("program", np.frombuffer(image, dtype=np.uint8))
    regions.put("static", stream.static.image())
    regions.put("embedding", pack_planes(model.embedding(np.arange(shape.vocab)), config.dim))
    regions.put("angles", pack_angles(model.cosine, model.sine, config.dim))
    regions.reserve("kv", shape.layers * shape.max_positions * 2 * shape.width)
    regions.reserve("logits", answers)
    return regions


def compile_decoder(model: QuantModel, config: Config, base_address: int = 0, *,
                    max_rows: int | None = None, tokens: bool = False) -> DecoderProgram:
    """Compile a quantised decoder for one device.

    With ``tokens`` the device picks each row's greedy token and stores that; without, it stores the logits.

    Raises:
        CompileError: the model does not fit the configuration; the message says what to change.
    """
    shape, dim = model.shape, config.dim
    plan = plan_decoder(shape, config, max_rows)
    stream = LoadStream(model, config, plan)
    commands = place_waits(
        emit_decoder(model, config, plan, stream, tokens=tokens), config, bounds_of(shape, plan))
    image = encode_program(commands)
    regions = lay_out(model, config, stream, image, plan.rows * 2 * (1 if tokens else round_up(shape.vocab, dim)))
    head = [part for chunk in stream.layers[-1]["head"] for part in chunk.parts]
    program = DecoderProgram(
        config=config, image=image, commands=tuple(commands), base_address=base_address, size=regions.size,
        symbols=regions.symbols(base_address), bases=REGIONS, shape=shape, dram=regions.image(), max_rows=plan.rows,
        max_positions=shape.max_positions, logit_scale=model.logit_scale,
        logit_pieces=tuple((part.source * dim, part.columns) for part in head), plan=plan, tokens=tokens)
    return program.verified(*program.extremes())
