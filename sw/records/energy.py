"""What ``--json`` says of energy."""

from __future__ import annotations

from pydantic import BaseModel, Field

__all__ = ["Energy"]


class EventEnergy(BaseModel):
    """One kind of event."""

    count: int
    attojoules: int = Field(description="of one")


class Energy(BaseModel):
    """Energy of a device and its DRAM by a table of energies per event; the host is not counted."""

    table: str = Field(description="name of the table")
    events: dict[str, EventEnergy] = Field(description="counts, and what one takes on this device (docs/energy.md)")
    attojoules: int = Field(description="sum over all events; a picojoule is 10**6")
    attojoules_by_part: dict[str, int] = Field(description="by part of the device; they add up to attojoules exactly")
    pj: float = Field(description="the sum in pJ")
    pj_per_token: float | None = Field(default=None, description="per new token, prompt included; null: no tokens")
    tops_per_watt: float | None = Field(
        default=None, description="two operations per multiply-accumulate of the workload, divided by pj; null: not a "
                                  "product or pass")
