"""Known networks by shape: their published ``config.json`` without weights, described by the same importers.

The shapes stand in ``architectures.json`` with where they come from and how many parameters the network has; what
changes nothing in time (dropout, tokens, data types) is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.family import Blueprint
from gemmule.compiler.importers.load import describe
from gemmule.compiler.ir import Graph
from gemmule.io.reading import read_json

__all__ = ["Architecture", "architecture", "architectures"]

FILE = Path(__file__).with_name("architectures.json")
_KEYS = {
    "layers": ("n_layer", "num_hidden_layers"), "hidden": ("n_embd", "hidden_size", "word_embed_proj_dim"),
    "inner": ("n_inner", "ffn_dim", "intermediate_size"), "heads": ("n_head", "num_attention_heads"),
    "kv_heads": ("num_key_value_heads",), "positions": ("n_positions", "max_position_embeddings"),
    "vocab": ("vocab_size",),
}
"""What can be changed, and how config.json of the families calls it."""


@dataclass(frozen=True)
class Architecture:
    """A known network."""

    name: str
    source: str
    """Where its config.json stands."""
    parameters: int
    """As published, a tied head counted once."""
    config: dict[str, Any]

    def graph(self) -> Graph:
        """The float network; its tensors have names and shapes and no numbers.

        Raises:
            CompileError: no importer knows it; the message names the key.
        """
        return self._plan().graph

    @property
    def numbers(self) -> int:
        """Of all tensors that are read, each once.

        Raises:
            CompileError: as of :meth:`graph`.
        """
        stored = {part.name: part.stored for source in self._plan().sources.values() for part in source.parts}
        return sum(map(prod, stored.values()))

    def _plan(self) -> Blueprint:
        try:
            return describe(self.config, frozenset())[1]
        except CompileError as error:
            raise CompileError(f"{self.name}: {error}") from None

    def resized(self, what: str, value: int) -> Architecture:
        """The same family with other ``layers``, ``hidden`` columns (heads and inner columns in proportion; the
        columns of a head stay), ``positions`` or ``vocab``.

        Raises:
            CompileError: sizes that do not divide.
        """
        new = {what: value}
        if what == "hidden":
            hidden, heads = self._get("hidden"), self._get("heads")
            if value < 1 or value * heads % hidden:
                raise CompileError(f"hidden of {self.name} must be a multiple of {hidden // heads}, the columns of a "
                                   f"head, not {value}")
            new |= {part: max(1, self._get(part) * value // hidden)
                    for part in ("inner", "heads", "kv_heads") if self._get(part)}
            if "kv_heads" in new and new["heads"] % new["kv_heads"]:
                raise CompileError(f"hidden of {self.name} must leave heads a multiple of KV heads, not {value}: "
                                   f"{new['heads']} and {new['kv_heads']}")
        changed = {key: new[part] for part, keys in _KEYS.items() if part in new
                   for key in keys if self.config.get(key) is not None}
        return Architecture(self.name, self.source, self.parameters, self.config | changed)

    def _get(self, part: str) -> int:
        """A size, 0 where the config leaves it to the family."""
        return next((self.config[key] for key in _KEYS[part] if self.config.get(key) is not None), 0)


@cache
def architectures() -> dict[str, Architecture]:
    """All by name."""
    return {name: Architecture(name, **found) for name, found in read_json(FILE, 1 << 20).items()}


def architecture(name: str) -> Architecture:
    """The one of that name.

    Raises:
        CompileError: there is none.
    """
    known = architectures()
    if name not in known:
        raise CompileError(f"architecture must be one of {', '.join(known)}, not {name!r}")
    return known[name]
