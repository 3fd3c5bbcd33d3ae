"""How a model writes a conversation: its chat template, and the tokens that the template may name."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

__all__ = ["Chat"]


class Chat(BaseModel):
    """A chat template as the model's makers wrote it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    template: str
    """Jinja2 source."""
    tokens: Mapping[str, str]
    """Text of ``bos_token``, ``eos_token``, ``pad_token`` and ``unk_token``, those that exist."""
