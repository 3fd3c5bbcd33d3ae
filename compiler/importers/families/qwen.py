"""Qwen2 and Qwen3: Llama with biases of q, k and v, or with a norm of each head of q and k.

Where the file asks for it, layers from some layer on have a window.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gemmule.compiler.importers.config import MOST_COLUMNS, HeadCount, parse_keys
from gemmule.compiler.importers.families.llama import INV_FREQ, LlamaKind, describe_llama
from gemmule.compiler.importers.family import Blueprint, Family

__all__ = ["QWEN", "Qwen2Keys", "Qwen3Keys"]

_WINDOWED = "sliding_attention"


class Qwen2Keys(LlamaKind):
    """config.json of Qwen2 and Qwen2.5, defaults as in transformers."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"max_sequence_length", "use_mrope", "attention_bias", "mlp_bias"})

    num_key_value_heads: HeadCount | None = 32
    use_sliding_window: bool = False
    sliding_window: int | None = Field(default=4096, ge=1)
    max_window_layers: int = Field(default=28, ge=0, le=4096)
    """Layers before this one see all."""
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None

    @model_validator(mode="after")
    def _check_windows(self) -> Self:
        if self.layer_types is None:
            return self
        if len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(f"layer_types must name each of num_hidden_layers = {self.num_hidden_layers:,} layers, "
                             f"not {len(self.layer_types):,}")
        if _WINDOWED in self.layer_types and not (self.use_sliding_window and self.sliding_window):
            raise ValueError(f"layer_types must not name {_WINDOWED} where use_sliding_window and sliding_window give "
                             "no window")
        return self

    @property
    def biases(self) -> tuple[bool, bool, bool]:
        """Those of q, k and v alone."""
        return True, False, False

    def window(self, layer: int) -> int | None:
        """That of layers which have one, as ``layer_types`` says, else those from ``max_window_layers`` on."""
        if not self.use_sliding_window or (self.sliding_window or self.positions) >= self.positions:
            return None
        windowed = layer >= self.max_window_layers if self.layer_types is None else self.layer_types[layer] == _WINDOWED
        return self.sliding_window if windowed else None


class Qwen3Keys(Qwen2Keys):
    """config.json of Qwen3, defaults as in transformers: a head has 128 columns whatever the hidden size."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"max_sequence_length", "use_mrope", "mlp_bias"})

    head_dim: Annotated[int, Field(ge=2, le=MOST_COLUMNS, multiple_of=2)] = 128  # type: ignore[assignment]
    attention_bias: bool = False

    @property
    def biases(self) -> tuple[bool, bool, bool]:
        """Those around attention, where the file says so."""
        return self.attention_bias, self.attention_bias, False

    @property
    def head_norms(self) -> bool:
        """Each head of q and k is normed."""
        return True


def _describe(model_type: str, config: dict[str, Any], names: frozenset[str]) -> Blueprint:
    if model_type == "qwen2":
        return describe_llama("qwen2", parse_keys(Qwen2Keys, config), names)
    return describe_llama("qwen3", parse_keys(Qwen3Keys, config), names)


QWEN = Family(
    model_types=("qwen2", "qwen3"),
    architectures=("Qwen2ForCausalLM", "Qwen2Model", "Qwen3ForCausalLM", "Qwen3Model"),
    describe=_describe, harmless=(INV_FREQ,))
