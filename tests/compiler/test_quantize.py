"""Quantiser and interpreter against the float model; files; errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gemmule.compiler import CompileError, Interpreter, KvCache, load_checkpoint, quantize
from gemmule.compiler.qmodel import load_quantized, save_quantized
from gemmule.compiler.quality import bits_per_byte, float_predictor, integer_predictor
from gemmule.compiler.quantize import to_mult_shift
from gemmule.compiler.reference import float_forward
from gemmule.numerics import requant


def test_mult_shift_keeps_sixteen_bits() -> None:
    ratios = np.concatenate([2.0 ** np.random.default_rng(3).uniform(-31, 15, 500), [1.0, 0.999999, 0.5]])
    mult, shift = to_mult_shift(ratios)
    assert ((mult >= 1 << 15) & (mult < 1 << 16) & (shift >= 0) & (shift <= 47)).all()
    assert np.abs(mult * 2.0 ** -shift / ratios - 1).max() <= 2.0 ** -16
    assert requant(np.array([1000]), *to_mult_shift(0.25))[0] == 250
    assert [int(v[0]) for v in to_mult_shift(0.0)] == [0, 0]
    with pytest.raises(CompileError, match="from 0 to 65535"):
        to_mult_shift(70000.0)


@pytest.mark.parametrize("changes", [
    {}, {"gated": True, "activation": "silu", "tied": False}, {"layers": 1, "activation": "relu", "heads": 4},
    {"activation": "relu2"},
])
def test_integer_logits_follow_float(make_checkpoint, changes) -> None:
    checkpoint = make_checkpoint(seed=5, **changes)
    tokens = np.random.default_rng(6).integers(0, checkpoint.shape.vocab, (8, 32))
    model = quantize(checkpoint, tokens[:6])
    wanted = float_forward(checkpoint, tokens[6:])
    found = integer_predictor(model)(tokens[6:])
    error = np.sqrt(((found - wanted) ** 2).mean()) / np.sqrt((wanted ** 2).mean())
    assert error < 0.06, f"relative error {error:.4f}"
    assert (found.argmax(-1) == wanted.argmax(-1)).mean() > 0.8


@pytest.mark.parametrize("activation", ["relu", "relu2"])
def test_channels_of_unequal_range_are_shared_out(make_checkpoint, activation: str) -> None:
    """Rows of up times a, columns of down over a**degree: the same network, which one step for all would ruin."""
    plain = make_checkpoint(seed=21, activation=activation)
    factors = 2.0 ** np.random.default_rng(22).uniform(-2, 2, plain.shape.inner).astype(np.float32)
    degree = 2 if activation == "relu2" else 1
    layers = tuple(replace(layer, up=layer.up * factors[:, None], down=layer.down / factors ** degree)
                   for layer in plain.layers)
    uneven = replace(plain, layers=layers)
    tokens = np.random.default_rng(23).integers(0, plain.shape.vocab, (8, 32))
    wanted = float_forward(plain, tokens[6:])
    assert np.allclose(float_forward(uneven, tokens[6:]), wanted, atol=1e-3)
    errors = [np.sqrt(((integer_predictor(quantize(one, tokens[:6]))(tokens[6:]) - wanted) ** 2).mean())
              / np.sqrt((wanted ** 2).mean()) for one in (plain, uneven)]
    print(f"relative errors {errors}")
    assert errors[1] < 1.5 * errors[0]


def test_float_forward_matches_a_plain_loop(make_checkpoint) -> None:
    """One token at a time, one head at a time, with complex numbers for the rotation."""
    m = make_checkpoint(seed=7, gated=True, activation="silu", tied=False)
    s, tokens = m.shape, [3, 9, 4, 4, 60]
    keys: list[list[np.ndarray]] = [[] for _ in m.layers]
    values: list[list[np.ndarray]] = [[] for _ in m.layers]

    def norm(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x ** 2) + s.rms_eps) * gamma

    def turn(x: np.ndarray, position: int) -> np.ndarray:
        pairs = x.reshape(s.heads, -1, 2)
        angle = position * s.rope_theta ** (-np.arange(s.head_dim // 2) * 2 / s.head_dim)
        z = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle)
        return np.stack((z.real, z.imag), -1).reshape(s.heads, s.head_dim)

    rows = []
    for position, token in enumerate(tokens):
        x = m.embedding[token].astype(np.float64)
        for index, layer in enumerate(m.layers):
            y = norm(x, layer.attention_norm)
            q = turn(layer.q @ y, position)
            keys[index].append(turn(layer.k @ y, position))
            values[index].append((layer.v @ y).reshape(s.heads, s.head_dim))
            context = []
            for h in range(s.heads):
                score = np.array([q[h] @ k[h] for k in keys[index]]) / np.sqrt(s.head_dim)
                weight = np.exp(score - score.max())
                context.append(weight / weight.sum() @ np.array([v[h] for v in values[index]]))
            x = x + layer.o @ np.concatenate(context)
            y = norm(x, layer.mlp_norm)
            gate = layer.gate @ y
            x = x + layer.down @ (gate / (1 + np.exp(-gate)) * (layer.up @ y))
        rows.append(m.head @ norm(x, m.norm))
    assert np.allclose(float_forward(m, np.array([tokens]))[0], rows, rtol=1e-3, atol=1e-4)


def test_rows_at_once_equal_rows_one_by_one(make_model) -> None:
    """Principle of losslessness: no row depends on the rows beside it; a rollback is a shorter context."""
    model = make_model(seed=11)
    tokens = np.random.default_rng(12).integers(0, model.shape.vocab, 32)
    interpreter, whole, single, mixed = Interpreter(model), KvCache(model), KvCache(model), KvCache(model)
    wanted = interpreter.forward(tokens, 0, whole)
    rows = [interpreter.forward(tokens[i:i + 1], i, single)[0] for i in range(32)]
    assert np.array_equal(wanted, rows)
    position, random = 0, np.random.default_rng(13)
    while position < 32:
        n = int(min(32 - position, random.integers(1, 8)))
        rejected = (tokens[position:position + n] + 1) % model.shape.vocab
        interpreter.forward(rejected, position, mixed)
        assert np.array_equal(interpreter.forward(tokens[position:position + n], position, mixed),
                              wanted[position:position + n])
        position += n
    assert np.array_equal(whole.keys, mixed.keys)


def test_bits_per_byte(make_checkpoint, make_model) -> None:
    tokens = np.random.default_rng(14).integers(0, 72, 70)
    uniform = bits_per_byte(lambda ids: np.zeros((*ids.shape, 64)), tokens % 64, 69, window=32)
    assert uniform == pytest.approx(6.0)
    exact = bits_per_byte(float_predictor(make_checkpoint()), tokens, 100, window=32)
    found = bits_per_byte(integer_predictor(make_model()), tokens, 100, window=32)
    assert found == pytest.approx(exact, rel=0.03)


def test_file_round_trip_and_equal_bytes(make_model, tmp_path: Path) -> None:
    for gated in (False, True):
        model = make_model(seed=2, gated=gated, tied=not gated)
        paths = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
        save_quantized(model, paths[0])
        again = load_quantized(paths[0])
        save_quantized(again, paths[1])
        assert paths[0].read_bytes() == paths[1].read_bytes()
        tokens = [1, 2, 3]
        assert np.array_equal(Interpreter(model).forward(tokens, 0, KvCache(model)),
                              Interpreter(again).forward(tokens, 0, KvCache(again)))
    assert not list(tmp_path.glob("*.tmp"))


def test_file_errors(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="cannot be read: No such file"):
        load_quantized(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"xx")
    with pytest.raises(CompileError, match="not a safetensors file"):
        load_quantized(tmp_path / "bad")
    save_file({"x": np.zeros(1, np.int8)}, tmp_path / "other")
    with pytest.raises(CompileError, match="quantise it again"):
        load_quantized(tmp_path / "other")


def _write(folder: Path, checkpoint, **config) -> None:
    s = checkpoint.shape
    tensors = {"model.embed_tokens.weight": checkpoint.embedding, "model.norm.weight": checkpoint.norm}
    names = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
    names |= {n: f"self_attn.{n}_proj" for n in "qkvo"} | {n: f"mlp.{n}_proj" for n in ("gate", "up", "down")}
    for i, layer in enumerate(checkpoint.layers):
        for ours, theirs in names.items():
            if getattr(layer, ours) is not None:
                tensors[f"model.layers.{i}.{theirs}.weight"] = getattr(layer, ours)
    save_file(tensors, folder / "model.safetensors")
    keys = {"hidden_size": s.hidden, "intermediate_size": s.inner, "num_hidden_layers": s.layers,
            "num_attention_heads": s.heads, "head_dim": s.head_dim, "vocab_size": s.vocab,
            "max_position_embeddings": s.max_positions, "rms_norm_eps": s.rms_eps, "hidden_act": s.activation,
            "tie_word_embeddings": True, "rope_interleaved": True}
    (folder / "config.json").write_text(json.dumps(keys | config))


def test_checkpoint_import(make_checkpoint, tmp_path: Path) -> None:
    checkpoint = make_checkpoint()
    _write(tmp_path, checkpoint)
    found = load_checkpoint(tmp_path)
    assert found.shape == checkpoint.shape
    assert np.array_equal(found.layers[1].k, checkpoint.layers[1].k)
    # The half-split layout: scores after rotation agree when the halves are rotated as pairs (i, i + d/2).
    _write(tmp_path, checkpoint, rope_interleaved=False)
    permuted = load_checkpoint(tmp_path).layers[0]
    half = checkpoint.shape.head_dim // 2
    plain = checkpoint.layers[0].q.reshape(2, 2, half, -1)
    assert np.array_equal(permuted.q.reshape(2, half, 2, -1)[:, 3, 1], plain[:, 1, 3])
    assert np.array_equal(permuted.v, checkpoint.layers[0].v)


@pytest.mark.parametrize(("config", "message"), [
    ({"num_key_value_heads": 1}, "num_key_value_heads must equal"),
    ({"hidden_act": "swish2"}, "hidden_act must be"), ({"attention_bias": True}, "must be false"),
    ({"rope_scaling": {"type": "x"}}, "rope_scaling must be absent"),
    ({"hidden_size": 40}, "must have shape"), ({"tie_word_embeddings": False}, "lacks the tensor 'lm_head"),
])
def test_checkpoint_errors(make_checkpoint, tmp_path: Path, config, message) -> None:
    _write(tmp_path, make_checkpoint(), **config)
    with pytest.raises(CompileError, match=message):
        load_checkpoint(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CompileError, match="has no config.json"):
        load_checkpoint(tmp_path)


def test_token_errors(make_checkpoint, make_model) -> None:
    model = make_model()
    interpreter, cache = Interpreter(model), KvCache(model)
    for tokens, position in (([], 0), ([72], 0), ([1], 32), ([1], -1)):
        with pytest.raises(CompileError, match="must be"):
            interpreter.forward(tokens, position, cache)
    with pytest.raises(CompileError, match="calibration tokens"):
        quantize(make_checkpoint(), np.array([[72]]))


