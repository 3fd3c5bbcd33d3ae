"""Checkpoints in the Hugging Face layout and a trained tokenizer, as the bundler meets them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from gemmule.sw.training.networks.export import ModelShape, save_checkpoint

from .runner import MODELS, Case

SHAPE = ModelShape(hidden_size=8, intermediate_size=16, num_layers=1, num_heads=2, head_dim=4, max_positions=16)
Change = Callable[[Path], None]


def write(folder: Path) -> None:
    """What training would write to ``folder``: a tokenizer and two small checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(MODELS / "tokenizer.json", folder)
    random = np.random.default_rng(1)
    for name in ("target", "draft"):
        save_checkpoint(folder / name, SHAPE, {
            key: random.standard_normal(size).astype(np.float32) for key, size in SHAPE.weight_shapes().items()})


def config(**keys: object) -> Change:
    """Keys of config.json; None removes one."""
    def change(folder: Path) -> None:
        data = json.loads((folder / "config.json").read_text()) | keys
        (folder / "config.json").write_text(json.dumps(
            {key: value for key, value in data.items() if value is not None}))
    return change


def text(content: bytes) -> Change:
    """config.json as a whole."""
    return lambda folder: (folder / "config.json").write_bytes(content) and None


def tensors(change: Callable[[dict[str, np.ndarray]], Any]) -> Change:
    def both(folder: Path) -> None:
        found = load_file(folder / "model.safetensors")
        change(found)
        save_file({name: np.ascontiguousarray(value) for name, value in found.items()}, folder / "model.safetensors")
    return both


def value(name: str, number: float, dtype: type = np.float32) -> Change:
    """One value of a tensor."""
    def change(found: dict[str, np.ndarray]) -> None:
        found[name] = found[name].astype(dtype)
        found[name].reshape(-1)[3] = number
    return tensors(change)


NORM, EMBEDDING = "model.norm.weight", "model.embed_tokens.weight"
CONFIG: dict[str, tuple[Change, str]] = {
    "no JSON": (text(b"{'hidden_size': 8}"), ":1: is not JSON"),
    "not UTF-8": (text(b"\xff\xfe{}"), "is not UTF-8 text"),
    "brackets": (text(b"[" * 100_000), "its nesting too deep"), "list": (text(b"[]"), "must hold a JSON object"),
    "digits": (text(b'{"vocab_size": ' + b"9" * 5000 + b"}"), "a number is too long"),
    "two MiB": (text(b" " * (2 << 20)), "must hold at most 1,048,576 bytes, not 2,097,152"),
    "key twice": (text(b'{"hidden_size": 8, "hidden_size": 16}'), "names 'hidden_size' twice"),
    "NaN": (text(b'{"rms_norm_eps": NaN}'), "numbers must be finite, not NaN"),
    "missing": (config(hidden_size=None), "hidden_size is missing"),
    "text": (config(hidden_size="8"), "hidden_size must be an integer, not '8'"),
    "float": (config(num_hidden_layers=1.0), "num_hidden_layers must be an integer, not 1.0"),
    "negative": (config(intermediate_size=-16), "intermediate_size must be at least 1, not -16"),
    "no heads": (config(num_attention_heads=0, num_key_value_heads=0), "num_attention_heads must be at least 1, not 0"),
    "heads that do not divide": (config(num_attention_heads=3, num_key_value_heads=3, head_dim=None),
                                 "hidden_size must be a multiple of num_attention_heads = 3"),
    "layers": (config(num_hidden_layers=10**12), "num_hidden_layers must be at most 1,024, not 1000000000000"),
    "vocabulary": (config(vocab_size=10**12), "vocab_size must be at most 262,144"),
    "positions": (config(max_position_embeddings=0), "max_position_embeddings must be at least 1, not 0"),
    "odd heads": (config(head_dim=5), "head_dim must be a multiple of 2, not 5"),
    "epsilon": (config(rms_norm_eps="1e-5"), "rms_norm_eps must be a number, not '1e-5'"),
    "theta": (config(rope_theta=-1), "rope_theta must be at least 1.0, not -1"),
    "activation": (config(hidden_act=["relu"]), "hidden_act must be"),
    "truth": (config(tie_word_embeddings="false"), "tie_word_embeddings must be true or false, not 'false'"),
    "interleaved": (config(rope_interleaved="no"), "rope_interleaved must be true or false, not 'no'"),
    "scaling": (config(rope_scaling={"factor": 2}), "factor = 2.0 does not belong to rope_type default"),
}
"""What config.json holds."""
WEIGHTS: dict[str, tuple[Change, str]] = {
    "empty": (lambda at: (at / "model.safetensors").write_bytes(b"") and None, "is not a safetensors file"),
    "header of 2**63 bytes": (lambda at: (at / "model.safetensors").write_bytes(b"\0" * 7 + b"\x80") and None,
                              "its header would have"),
    "cut": (lambda at: os.truncate(at / "model.safetensors", 5000), "is not a safetensors file"),
    "renamed": (tensors(lambda t: t.update({"model.Norm.weight": t.pop(NORM)})), "lacks the tensor 'model.norm.weig"),
    "a bias": (tensors(lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": np.zeros(8, np.float32)})),
               "must not hold the tensor 'model.layers.0.self_attn.q_proj.bias'"),
    "shape": (tensors(lambda t: t.update({EMBEDDING: t[EMBEDDING].T})), "must have shape (1024, 8), not (8, 1024)"),
    "integers": (tensors(lambda t: t.update({NORM: t[NORM].astype(np.int32)})),
                 "must have dtype F64 or F32 or F16 or BF16, not I32"),
    "grouped": (config(num_key_value_heads=1), "k_proj.weight must have shape (4, 8), not (8, 8)"),
    "bias": (config(attention_bias=True), "lacks the tensor 'model.layers.0.self_attn.k_proj.bias'"),
    "NaN": (value(EMBEDDING, np.nan), f"{EMBEDDING} must hold finite numbers"),
    "infinity": (value("model.layers.0.mlp.up_proj.weight", -np.inf), "mlp.up_proj.weight must hold finite numbers"),
    "infinity in half": (value(NORM, np.inf, np.float16), f"{NORM} must hold finite numbers"),
    "beyond float32": (value(NORM, 1e200, np.float64), f"{NORM} must hold numbers of float32, not 1e+200"),
    "another head": (tensors(lambda t: t.update({"lm_head.weight": t[EMBEDDING] + 1})), "lm_head.weight must equal"),
}
"""What model.safetensors holds."""


def _make(change: Change) -> Change:
    def make(folder: Path) -> None:
        write(folder / "train")
        change(folder / "train" / "target")
    return make


def _without_folder(folder: Path) -> None:
    write(folder / "train")
    shutil.rmtree(folder / "train" / "draft")


def _other_vocabulary(folder: Path) -> None:
    write(folder / "train")
    config(vocab_size=1000)(folder / "train" / "draft")
    tensors(lambda t: t.update({EMBEDDING: t[EMBEDDING][:1000]}))(folder / "train" / "draft")


def cases() -> Iterator[Case]:
    """All of them."""
    arguments = ("bundle", "--train", "train", "--out", "models")
    for name, table in (("config.json", CONFIG), ("model.safetensors", WEIGHTS)):
        for label, (change, says) in table.items():
            yield Case(label=f"{name}: {label}", arguments=arguments, make=_make(change), says=says,
                       names=f"train/target/{name}")
    yield Case(label="checkpoint: no folder", arguments=arguments, says="has no config.json", names="train/draft",
               make=_without_folder)
    yield Case(label="checkpoint: another vocabulary", arguments=arguments, make=_other_vocabulary,
               says="vocab_size must be that of the tokenizer, 1,024, not 1,000", names="train/draft")
    yield Case(label="checkpoint: nothing", arguments=arguments, says="cannot be read: No such file",
               names="train/tokenizer.json")
