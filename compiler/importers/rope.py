"""Rotary positions in ``config.json``: base, share of a head that is rotated, and how long contexts were stretched.

Older files have ``rope_theta`` and ``rope_scaling``, newer ones ``rope_parameters`` with all of it.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gemmule.compiler.importers.config import Keys
from gemmule.compiler.ir import RopeScaling
from gemmule.io.reading import shown

__all__ = ["MOST_POSITIONS", "RopeParameters", "RotaryKeys", "Share", "Theta"]

MOST_POSITIONS = 1 << 16
"""Positions have 16 bits on the device."""
_THETA = 10000.0
_TYPES = ("default", "linear", "llama3")

Theta = Annotated[float, Field(ge=1, le=1e12, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
"""Of a head's columns that are rotated."""
_Turns = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class RopeParameters(BaseModel):
    """``rope_parameters`` of transformers 5, and ``rope_scaling`` of before."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rope_type: str | None = None
    type: str | None = None
    """What old files call ``rope_type``."""
    rope_theta: Theta | None = None
    partial_rotary_factor: Share | None = None
    factor: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)] | None = None
    low_freq_factor: _Turns | None = None
    high_freq_factor: _Turns | None = None
    original_max_position_embeddings: Annotated[int, Field(ge=1, le=1 << 31)] | None = None

    @property
    def kind(self) -> str:
        """How rates are scaled."""
        return self.rope_type or self.type or "default"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind not in _TYPES:
            raise ValueError(f"rope_type must be {', '.join(_TYPES[:-1])} or {_TYPES[-1]}, not {shown(self.kind)}: "
                             "other scalings of rotary positions are not supported")
        needed = {"default": (), "linear": ("factor",),
                  "llama3": ("factor", "low_freq_factor", "high_freq_factor")}[self.kind]
        optional = ("original_max_position_embeddings",) if self.kind == "llama3" else ()
        for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
            value = getattr(self, name)
            if value is None and name in needed:
                raise ValueError(f"rope_type {self.kind} needs {name}")
            if value is not None and name not in (*needed, *optional):
                raise ValueError(f"{name} = {shown(value)} does not belong to rope_type {self.kind}: remove it, or "
                                 "name the type")
        if self.kind == "llama3" and not (self.low_freq_factor or 0) < (self.high_freq_factor or 0):
            raise ValueError(f"low_freq_factor must be less than high_freq_factor = {self.high_freq_factor}, not "
                             f"{self.low_freq_factor}")
        return self


class RotaryKeys(Keys):
    """Keys of families with rotary positions, which have no table of positions: a longer range can be cut."""

    SHARE: ClassVar[float] = 1.0
    """Of a head's columns that are rotated where no key says it."""
    OTHER_NAMES: ClassVar[dict[str, str]] = {}
    """What the family calls ``rope_theta`` and ``partial_rotary_factor``."""

    max_position_embeddings: Annotated[int, Field(ge=1, le=1 << 31)]
    rope_theta: Theta | None = None
    partial_rotary_factor: Share | None = None
    rope_parameters: RopeParameters | None = None
    rope_scaling: RopeParameters | None = None

    @model_validator(mode="after")
    def _check_rotary(self) -> Self:
        if self.rope_scaling and self.rope_parameters and self.rope_scaling != self.rope_parameters:
            raise ValueError("rope_scaling must be what rope_parameters is, not another one: keep one")
        for name in ("rope_theta", "partial_rotary_factor"):
            other = self.OTHER_NAMES.get(name, name)
            told = [(key, value) for key, value in (
                ("rope_parameters", getattr(self._given, name, None)), (other, getattr(self, other)),
                (name, getattr(self, name))) if value is not None]
            for key, value in told[1:]:
                if value != told[0][1]:
                    raise ValueError(f"{key} must be that of {told[0][0]}, {shown(told[0][1])}, not {shown(value)}: "
                                     "keep one")
        return self

    @property
    def _given(self) -> RopeParameters | None:
        return self.rope_scaling or self.rope_parameters

    def _told(self, name: str, default: float) -> float:
        """A rotary key, wherever it stands."""
        found: Any = getattr(self._given, name, None) or getattr(self, self.OTHER_NAMES.get(name, name)) or getattr(
            self, name)
        return float(found or default)

    @property
    def theta(self) -> float:
        """Base of the rotary angles."""
        return self._told("rope_theta", _THETA)

    @property
    def share(self) -> float:
        """Of a head's columns that are rotated."""
        return self._told("partial_rotary_factor", self.SHARE)

    @property
    def scaling(self) -> RopeScaling | None:
        """How rates are scaled."""
        given = self._given
        if given is None or given.factor is None:
            return None
        if given.kind == "linear":
            return RopeScaling(factor=given.factor)
        within = given.original_max_position_embeddings or self.max_position_embeddings
        return RopeScaling(factor=given.factor,
                           bands=(given.low_freq_factor or 0.0, given.high_freq_factor or 0.0, within))

    @property
    def positions(self) -> int:
        """That the network gets."""
        return min(self.max_position_embeddings, MOST_POSITIONS)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left out."""
        cut = () if self.positions == self.max_position_embeddings else (
            f"max_position_embeddings is cut from {self.max_position_embeddings:,} to {self.positions:,}: positions "
            "have 16 bits on the device",)
        return (*super().notes, *cut)

    def turned(self, head_dim: int) -> int:
        """Columns of a head that are rotated, the first ones.

        Raises:
            ValueError: they are no pairs; for a validator.
        """
        found = int(head_dim * self.share)
        if found < 2 or found % 2:
            name = self.OTHER_NAMES.get("partial_rotary_factor", "partial_rotary_factor")
            raise ValueError(f"{name} must rotate an even number of a head's {head_dim} columns, not {found}")
        return found
