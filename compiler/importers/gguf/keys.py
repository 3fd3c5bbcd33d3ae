"""Metadata of GGUF files as the ``config.json`` of the checkpoint that they were made from.

Every key of an architecture is used, or must have one value, or is refused by name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.rope import MOST_POSITIONS
from gemmule.io.fields import first_problem
from gemmule.io.reading import brief, shown

__all__ = ["ROPE_FACTORS", "Metadata", "config_of", "parse_metadata"]

ROPE_FACTORS = "rope_freqs.weight"
"""The tensor of Llama 3's scaling: a factor for each pair of rotated columns."""
_ORIGINAL = (8192, *(1 << bits for bits in range(4, 21)))
"""Positions before the scaling that are tried, the usual ones first."""
_CLOSE = 1e-4
"""Relative difference of factors that are the same: they are kept in float32."""

Count = Annotated[int, Field(ge=1, lt=1 << 31)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Metadata(BaseModel):
    """The keys of one architecture, without its name before them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    block_count: Count
    context_length: Count
    embedding_length: Count
    feed_forward_length: Count
    head_count: Count = Field(alias="attention.head_count")
    head_count_kv: Count | None = Field(default=None, alias="attention.head_count_kv")
    key_length: Count | None = Field(default=None, alias="attention.key_length")
    value_length: Count | None = Field(default=None, alias="attention.value_length")
    eps_rms: Positive | None = Field(default=None, alias="attention.layer_norm_rms_epsilon")
    eps: Positive | None = Field(default=None, alias="attention.layer_norm_epsilon")
    rope_dimensions: Count | None = Field(default=None, alias="rope.dimension_count")
    theta: Positive = Field(default=10000.0, alias="rope.freq_base")
    vocab_size: Count | None = None
    parallel: bool = Field(default=True, alias="use_parallel_residual")
    window: Count | None = Field(default=None, alias="attention.sliding_window")
    scaling: Literal["none", "linear"] = Field(default="linear", alias="rope.scaling.type")
    factor: Positive = Field(default=1.0, alias="rope.scaling.factor")
    # what must be so, and what says nothing
    causal: Literal[True] = Field(default=True, alias="attention.causal")
    experts: Literal[0] = Field(default=0, alias="expert_count")
    experts_used: Literal[0] = Field(default=0, alias="expert_used_count")
    tensor_data_layout: str = ""
    original: Count | None = Field(default=None, alias="rope.scaling.original_context_length")
    finetuned: bool = Field(default=True, alias="rope.scaling.finetuned")

    @property
    def kv_heads(self) -> int:
        """Heads of k and v."""
        return self.head_count_kv or self.head_count

    @property
    def head_dim(self) -> int:
        """Columns of a head."""
        return self.key_length or self.embedding_length // self.head_count


def parse_metadata(architecture: str, metadata: dict[str, Any]) -> Metadata:
    """The keys that describe the network, checked.

    Raises:
        CompileError: one is missing, unknown, or not what it must be.
    """
    prefix = f"{architecture}."
    try:
        found = Metadata.model_validate({key.removeprefix(prefix): value for key, value in metadata.items()
                                         if key.startswith(prefix)})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = brief(prefix + ".".join(str(part) for part in first["loc"]))
        if first["type"] == "extra_forbidden":
            raise CompileError(f"{key} = {shown(first['input'])} is not known here and may change what the network "
                               "computes") from None
        where, text = first_problem(error, Metadata)
        raise CompileError(f"{prefix}{text}" if where else text) from None
    if found.value_length not in (None, found.head_dim):
        raise CompileError(f"{prefix}attention.value_length must be attention.key_length = {found.head_dim:,}, not "
                           f"{found.value_length:,}")
    return found


def config_of(architecture: str, keys: Metadata, vocab: int, tied: bool, biased: bool,
              factors: np.ndarray | None) -> dict[str, Any]:
    """The config.json that a checkpoint of these keys has.

    Args:
        architecture: ``general.architecture``.
        keys: its metadata.
        vocab: rows of the embedding table.
        tied: no head is stored.
        biased: q has a bias.
        factors: Llama 3's scaling, where it is stored.

    Raises:
        CompileError: a key that this architecture needs is missing, or asks for what is not supported.
    """
    if keys.vocab_size not in (None, vocab):
        raise CompileError(f"{architecture}.vocab_size must be the rows of token_embd.weight, {vocab:,}, not "
                           f"{keys.vocab_size:,}")
    if architecture == "gpt2":
        return {
            "model_type": "gpt2", "vocab_size": vocab, "n_positions": _positions(keys), "n_embd": keys.embedding_length,
            "n_layer": keys.block_count, "n_head": keys.head_count, "n_inner": keys.feed_forward_length,
            "layer_norm_epsilon": _eps(architecture, keys, rms=False), "tie_word_embeddings": tied}
    common: dict[str, Any] = {
        "vocab_size": vocab, "max_position_embeddings": _positions(keys), "hidden_size": keys.embedding_length,
        "intermediate_size": keys.feed_forward_length, "num_hidden_layers": keys.block_count,
        "num_attention_heads": keys.head_count, "tie_word_embeddings": tied} | _stretched(keys)
    if architecture in ("phi2", "gptneox"):
        common["layer_norm_eps"] = _eps(architecture, keys, rms=False)
        if architecture == "phi2":
            return {"model_type": "phi", "num_key_value_heads": keys.kv_heads, "rope_theta": keys.theta,
                    "partial_rotary_factor": _share(keys)} | common
        return {"model_type": "gpt_neox", "rotary_emb_base": keys.theta, "rotary_pct": _share(keys),
                "use_parallel_residual": keys.parallel} | common
    if keys.rope_dimensions not in (None, keys.head_dim):
        raise CompileError(f"{architecture}.rope.dimension_count must be the columns of a head, {keys.head_dim:,}, not "
                           f"{keys.rope_dimensions:,}")
    config = common | {
        "model_type": architecture, "num_key_value_heads": keys.kv_heads, "rope_theta": keys.theta,
        "rms_norm_eps": _eps(architecture, keys, rms=True)}
    if keys.window is not None and architecture != "llama":
        raise CompileError(f"{architecture}.attention.sliding_window must be absent, not {keys.window:,}: only files "
                           "of Llama's architecture may have a window")
    config["head_dim"] = keys.head_dim
    if architecture == "qwen2":  # always biases of q, k and v, and no key for them
        return config
    if biased:
        config["attention_bias"] = True
    if keys.window is not None:
        config |= {"model_type": "mistral", "sliding_window": keys.window}
    if factors is not None and (scaling := _scaling(factors, keys)):
        config["rope_scaling"] = scaling
    return config


def _stretched(keys: Metadata) -> dict[str, Any]:
    """Rotary positions that are all divided by a number."""
    return {"rope_scaling": {"rope_type": "linear", "factor": keys.factor}} if (
        keys.scaling == "linear" and keys.factor != 1) else {}


def _positions(keys: Metadata) -> int:
    """Row numbers have 16 bits on the device; the first positions of a longer network stay as they are."""
    return min(keys.context_length, MOST_POSITIONS)


def _eps(architecture: str, keys: Metadata, *, rms: bool) -> float:
    """What is added to a variance, as short as its float32 tells it: the number of the checkpoint's config."""
    value = keys.eps_rms if rms else keys.eps
    if value is None:
        raise CompileError(f"{architecture}.attention.layer_norm_{'rms_' if rms else ''}epsilon is missing")
    return float(str(np.float32(value)))


def _share(keys: Metadata) -> float:
    """The share of a head's columns that is rotated; times the columns it is their number again."""
    turned = keys.rope_dimensions or keys.head_dim
    share = turned / keys.head_dim
    return share if int(share * keys.head_dim) == turned else float(np.nextafter(share, 1))


def _scaling(factors: np.ndarray, keys: Metadata) -> dict[str, Any] | None:
    """The keys of Llama 3's scaling that give these factors; None where they change nothing.

    Files hold the factors alone. All networks of the family have the same bounds, and as good as all the same original
    positions, so the largest factor tells the rest.

    Raises:
        CompileError: they are other factors.
    """
    with np.errstate(all="ignore"):
        largest = float(str(np.float32(factors.max())))
        if factors.shape != (keys.head_dim // 2,) or not np.isfinite(factors).all() or factors.min() < 1:
            raise CompileError(f"{ROPE_FACTORS} must hold {keys.head_dim // 2} numbers from 1 on, a factor for each "
                               "pair of a head's columns")
    if largest == 1:
        return None
    for positions in _ORIGINAL:
        known = {"rope_type": "llama3", "factor": largest, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                 "original_max_position_embeddings": positions}
        if np.allclose(factors, _llama3(keys, known), rtol=_CLOSE, atol=0):
            return known
    raise CompileError(f"{ROPE_FACTORS} must be the factors of Llama 3's scaling (bounds 1 and 4), not others")


def _llama3(keys: Metadata, scaling: dict[str, Any]) -> np.ndarray:
    """Factors by which Llama 3 divides its frequencies: 1 for short waves, the full factor for long ones, between
    them interpolated by how many waves the original positions hold."""
    frequencies = keys.theta ** (-np.arange(0, keys.head_dim, 2) / keys.head_dim)
    waves = scaling["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((waves - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / scaling["factor"] + smooth)
