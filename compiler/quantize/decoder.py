"""Float checkpoint to integer decoder: per-row int8 weights, static activation scales.

Scales come from a float run over calibration tokens and a small search for the clipping point
with the least squared error. All integer constants that the device uses are fixed here.
"""

from __future__ import annotations

import numpy as np

from gemmule.compiler.checkpoint import Checkpoint, DecoderShape, LayerWeights
from gemmule.compiler.errors import CompileError
from gemmule.compiler.qmodel import Linear, Norm, QuantLayer, QuantModel, rope_tables
from gemmule.compiler.quantize.scale import MULT_MAX, pair, to_mult_shift
from gemmule.compiler.reference import activate, float_forward
from gemmule.numerics import BYTE_TABLE_ENTRIES, saturate

__all__ = ["ROPE_EXTRA_BITS", "ROPE_SHIFT", "quantize"]

ROPE_EXTRA_BITS = 7
"""Fraction bits that q and k carry (int16) before the rotation rounds them to int8."""
ROPE_SHIFT = 14 + ROPE_EXTRA_BITS
_SAMPLES = 1 << 17
_CLIPS = np.linspace(0.3, 1.0, 36)
_ROW_CLIPS = np.linspace(0.7, 1.0, 13)
_SMOOTHING = 0.5
_DEGREES = {"relu": 1, "relu2": 2}
"""Activations f with f(a x) = a ** degree f(x) for a > 0: scaling a row of up is undone in a column of down."""
_MOST_SMOOTHED = 8.0
"""Channels that hardly ever fire are not scaled by more: what calibration has not seen must fit too."""
_INT16_MAX = (1 << 15) - 1


class _Taps:
    """Keeps a sample of every activation by name, plus per-channel squares and maxima."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.samples: dict[str, list[np.ndarray]] = {}
        self.largest: dict[str, float] = {}
        self.squares: dict[str, np.ndarray] = {}
        self.channel_max: dict[str, np.ndarray] = {}

    def __call__(self, name: str, value: np.ndarray) -> None:
        if name.endswith((".q", ".k", ".v")):
            for head in range(value.shape[1]):
                self._keep(f"{name}{head}", value[:, head])
            return
        self._keep(name, value)
        flat = value.reshape(-1, value.shape[-1])
        self.squares[name] = self.squares.get(name, 0) + (flat.astype(np.float64) ** 2).sum(0)
        peak = np.abs(flat).max(0)
        self.channel_max[name] = np.maximum(self.channel_max.get(name, 0), peak)

    def _keep(self, name: str, value: np.ndarray) -> None:
        flat = value.reshape(-1)
        self.largest[name] = max(self.largest.get(name, 0.0), float(np.abs(flat).max()))
        if len(flat) > _SAMPLES // 8:
            flat = flat[self.random.integers(0, len(flat), _SAMPLES // 8)]
        self.samples.setdefault(name, []).append(flat.astype(np.float32))

    def values(self, name: str) -> np.ndarray:
        return np.concatenate(self.samples[name])


def _step(values: np.ndarray, peak: float) -> float:
    """The int8 step with the least squared error on a sample; ``peak`` is the largest magnitude."""
    if peak == 0:
        return 1.0
    def error(clip: float) -> float:
        step = peak * clip / 127
        return float(((np.clip(np.rint(values / step), -128, 127) * step - values) ** 2).sum())
    return peak * min(_CLIPS, key=error) / 127


def _codes(weight: np.ndarray, importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes and a step per row, least error weighted by the inputs' mean squares."""
    weight = weight.astype(np.float64)
    peak = np.abs(weight).max(1)
    peak[peak == 0] = 1.0
    best, best_error = peak / 127, np.full(len(weight), np.inf)
    for clip in _ROW_CLIPS:
        step = peak * clip / 127
        rounded = np.clip(np.rint(weight / step[:, None]), -127, 127) * step[:, None]
        error = ((rounded - weight) ** 2 * importance).sum(1)
        best = np.where(error < best_error, step, best)
        best_error = np.minimum(error, best_error)
    return np.clip(np.rint(weight / best[:, None]), -127, 127).astype(np.int8), best


def _linear(weight: np.ndarray, importance: np.ndarray, in_step: float,
            out_step: np.ndarray | float) -> Linear:
    """Quantise; a column's ratio takes the integer product to its output step."""
    codes, step = _codes(weight, importance)
    mult, shift = to_mult_shift(step * in_step / out_step)
    return Linear(weight=codes, mult=mult.astype(np.uint16), shift=shift.astype(np.uint8))


def _norm(gamma: np.ndarray, step: float, eps: float, residual: float) -> Norm:
    """gamma over the output step as int16 (the normalised value has 10 fraction bits)."""
    ratio = gamma.astype(np.float64) / step
    peak = float(np.abs(ratio).max()) or 1.0
    shift = int(np.clip(np.floor(np.log2(_INT16_MAX / peak)), -10, 30))
    # epsilon in units of n * sum(x^2): eps * n^2 / residual^2.
    wanted = eps * len(gamma) ** 2 / residual ** 2
    eps_shift = max(0, int(np.ceil(np.log2(max(wanted, 1) / MULT_MAX))))
    if eps_shift > 40:
        raise CompileError(f"rms_norm_eps must be small beside the residual scale {residual}, not {eps}")
    return Norm(gamma=saturate(np.rint(ratio * 2.0 ** shift), 16).astype(np.int16), shift=10 + shift,
                eps_mult=int(round(wanted / 2 ** eps_shift)), eps_shift=eps_shift)


def _smooth(taps: _Taps, name: str, weights: list[np.ndarray]) -> np.ndarray:
    """Per-channel divisor that shares the range between a norm's output and the weights it feeds."""
    activation = np.maximum(taps.channel_max[name].astype(np.float64), 1e-6)
    weight = np.maximum(np.max([np.abs(w).max(0) for w in weights], axis=0).astype(np.float64), 1e-6)
    divisor = activation ** _SMOOTHING / weight ** (1 - _SMOOTHING)
    return divisor / np.exp(np.log(divisor).mean())


def _smoothed(taps: _Taps, name: str, weights: list[np.ndarray]) -> tuple[np.ndarray, float, np.ndarray]:
    """(divisor, int8 step of the divided norm output, mean squares of its channels)."""
    divisor = _smooth(taps, name, weights)
    values = taps.values(name + "/rows") / divisor
    step = _step(values.reshape(-1), float(np.abs(values).max()))
    return divisor, step, taps.squares[name] / divisor ** 2


def _activation_steps(name: str, before: np.ndarray, peak: float,
                      out_step: float) -> tuple[float, np.ndarray]:
    """Input step of the activation table with the least error after it, and the table."""
    wanted = activate(name, before.astype(np.float64))
    index = np.arange(BYTE_TABLE_ENTRIES)
    signed = np.where(index < 128, index, index - BYTE_TABLE_ENTRIES)

    def table(step: float) -> np.ndarray:
        return np.clip(np.rint(activate(name, signed * step) / out_step), -128, 127)

    def error(clip: float) -> float:
        step = peak * clip / 127
        code = np.clip(np.rint(before / step), -128, 127).astype(np.int64)
        return float(((table(step)[code & 255] * out_step - wanted) ** 2).sum())

    step = (peak or 1.0) * (min(_CLIPS, key=error) if peak else 1.0) / 127
    return step, (table(step).astype(np.int64) & 255).astype(np.uint8)


def _rectified(taps: _Taps, at: str, shape: DecoderShape, layer: LayerWeights) -> np.ndarray | None:
    """What each channel of h is divided by, so that channels share the range of int8; None where none can be scaled.

    Squared ReLU has a long tail: one step for all channels would round most of them to zero.
    """
    if layer.gate is not None or shape.activation not in _DEGREES:
        return None
    divisor = _smooth(taps, at + "h", [layer.down])
    return np.clip(divisor, 1 / _MOST_SMOOTHED, _MOST_SMOOTHED)


def _layer(model: Checkpoint, index: int, taps: _Taps, residual: float) -> QuantLayer:
    layer: LayerWeights = model.layers[index]
    shape, at = model.shape, f"{index}."
    hidden = _rectified(taps, at, shape, layer)
    up_weight, down_weight, of_h = layer.up, layer.down, taps.squares[at + "h"]
    if hidden is not None:
        up_weight = layer.up * hidden[:, None] ** (-1 / _DEGREES[shape.activation])
        down_weight, of_h = layer.down * hidden, of_h / hidden ** 2

    def step(name: str) -> float:
        return _step(taps.values(at + name), taps.largest[at + name])

    divide, in_step, squares = _smoothed(taps, at + "norm1", [layer.q, layer.k, layer.v])
    heads = {name: np.array([step(f"{name}{head}") for head in range(shape.heads)]) for name in "qkv"}
    fine = 2.0 ** -ROPE_EXTRA_BITS
    q, k, v = (
        _linear(weight * divide, squares, in_step, np.repeat(heads[name], shape.head_dim) * scale)
        for name, weight, scale in (("q", layer.q, fine), ("k", layer.k, fine), ("v", layer.v, 1.0)))
    to_log2 = np.log2(np.e) / np.sqrt(shape.head_dim) * 1024
    context = step("ctx")
    divide2, in_step2, squares2 = _smoothed(
        taps, at + "norm2", [up_weight] if layer.gate is None else [up_weight, layer.gate])
    gate, product = None, (0, 0)
    if hidden is not None:
        up = (taps.values(at + "up/rows") * hidden ** (-1 / _DEGREES[shape.activation])).reshape(-1)
        h = activate(shape.activation, up)
        h_step = _step(h, float(h.max()))
        up_step, table = _activation_steps(shape.activation, up, max(0.0, float(up.max())), h_step)
    elif layer.gate is None:
        h_step = step("h")
        up_step, table = _activation_steps(
            shape.activation, taps.values(at + "up"), taps.largest[at + "up"], h_step)
    else:
        h_step, up_step, act_step = step("h"), step("up"), step("act")
        gate_step, table = _activation_steps(
            shape.activation, taps.values(at + "gate"), taps.largest[at + "gate"], act_step)
        gate = _linear(layer.gate * divide2, squares2, in_step2, gate_step)
        product = pair(up_step * act_step / h_step)
    return QuantLayer(
        attention_norm=_norm(layer.attention_norm / divide, in_step, shape.rms_eps, residual),
        q=q, k=k, v=v,
        score=np.array([pair(a * b * to_log2) for a, b in zip(heads["q"], heads["k"])], dtype=np.int32),
        context=np.array([pair(a / context) for a in heads["v"]], dtype=np.int32),
        o=_linear(layer.o, taps.squares[at + "ctx"], context, residual),
        mlp_norm=_norm(layer.mlp_norm / divide2, in_step2, shape.rms_eps, residual),
        gate=gate, up=_linear(up_weight * divide2, squares2, in_step2, up_step), table=table, product=product,
        down=_linear(down_weight, of_h, h_step, residual),
    )


def quantize(model: Checkpoint, tokens: np.ndarray, *, seed: int = 0) -> QuantModel:
    """Quantise a checkpoint with calibration ``tokens[windows, length]``.

    Deterministic for equal inputs and seed. The residual scale leaves a quarter of headroom over the
    largest value seen, the logits' a half.
    """
    shape = model.shape
    tokens = np.atleast_2d(np.asarray(tokens, dtype=np.int64))
    if tokens.size == 0 or tokens.min() < 0 or tokens.max() >= shape.vocab:
        raise CompileError(f"calibration tokens must be from 0 to {shape.vocab - 1} and not empty")
    tokens = tokens[:, :shape.max_positions]
    taps = _Taps(seed)
    rows: dict[str, list[np.ndarray]] = {}

    def observe(name: str, value: np.ndarray) -> None:
        taps(name, value)
        if "norm" in name or name.endswith(".up"):  # whole rows: channels are divided before the step is searched
            flat = value.reshape(-1, value.shape[-1])
            rows.setdefault(name, []).append(flat[:: max(1, len(flat) // 128)])

    together = min(8, max(1, 2048 // tokens.shape[1]))  # windows at a time: scores are [windows, heads, length, length]
    for start in range(0, len(tokens), together):
        float_forward(model, tokens[start:start + together], observe)
    for name, parts in rows.items():
        taps.samples[name + "/rows"] = parts
    # The residual's largest value counts every token's embedding, seen in calibration or not.
    residual = 1.25 * max(taps.largest["x"], float(np.abs(model.embedding).max())) / _INT16_MAX
    logit_scale = 1.5 * taps.largest["logits"] / _INT16_MAX
    layers = tuple(_layer(model, index, taps, residual) for index in range(shape.layers))

    step = _step(taps.values("norm"), taps.largest["norm"])
    head, head_step = _codes(model.head, taps.squares["norm"])
    mult, shift = to_mult_shift(head_step * step / logit_scale)
    if shape.tied:
        codes, code_step = None, head_step
    else:
        codes, code_step = _codes(model.embedding, np.ones(shape.hidden))
    embedding_mult, embedding_shift = to_mult_shift(code_step / residual)
    cosine, sine = rope_tables(shape)
    return QuantModel(
        shape=shape, embedding_codes=codes, embedding_mult=embedding_mult.astype(np.uint16),
        embedding_shift=embedding_shift.astype(np.uint8), cosine=cosine, sine=sine, layers=layers,
        norm=_norm(model.norm, step, shape.rms_eps, residual),
        head=Linear(weight=head, mult=mult.astype(np.uint16), shift=shift.astype(np.uint8)),
        residual_scale=residual, logit_scale=logit_scale,
    )
