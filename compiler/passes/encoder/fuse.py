"""The operators of a post-norm encoder by their place: embedding, layers, what is behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Linear
from gemmule.compiler.passes.fuse import Attend, Embed, Head, Inner, Normalize, Operator, Project

__all__ = ["EncoderOperators", "LayerOperators", "split_operators"]


@dataclass(frozen=True, kw_only=True)
class LayerOperators:
    """One layer's."""

    attend: Attend
    output: Project
    attention_norm: Normalize
    inner: Inner
    down: Project
    output_norm: Normalize


@dataclass(frozen=True, kw_only=True)
class EncoderOperators:
    """An encoder's, by their place."""

    embed: Embed
    norm: Normalize
    layers: tuple[LayerOperators, ...]
    pooler: Inner | None = None
    classifier: Linear | None = None


def split_operators(operators: Sequence[Operator]) -> EncoderOperators:
    """The operators of an encoder by their place.

    Raises:
        CompileError: they are not those of a post-norm encoder.
    """
    kinds = (Attend, Project, Normalize, Inner, Project, Normalize)
    first, norm, rest = operators[0], operators[1] if len(operators) > 1 else None, list(operators[2:])
    layers = []
    while rest and isinstance(rest[0], Attend):
        part, rest = rest[:len(kinds)], rest[len(kinds):]
        match part:
            case [Attend() as attend, Project() as output, Normalize() as attention_norm, Inner() as inner,
                  Project() as down, Normalize() as output_norm] if inner.gate is None and not attend.query_rope:
                layers.append(LayerOperators(attend=attend, output=output, attention_norm=attention_norm, inner=inner,
                                             down=down, output_norm=output_norm))
            case _:
                raise CompileError("layers of an encoder must be attention and MLP with a norm behind each")
    if not isinstance(first, Embed) or not isinstance(norm, Normalize) or not layers:
        raise CompileError("an encoder must begin with an embedding and its norm, and have layers")
    match rest:
        case []:
            return EncoderOperators(embed=first, norm=norm, layers=tuple(layers))
        case [Inner() as pooler, Head() as head]:
            return EncoderOperators(embed=first, norm=norm, layers=tuple(layers), pooler=pooler,
                                    classifier=head.linear)
    raise CompileError("behind an encoder's layers there must be nothing, or a pooler and a classifier")
