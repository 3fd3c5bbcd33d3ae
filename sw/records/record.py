"""The fields that every output starts with."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Record"]


class Record(BaseModel):
    """The fields that every output starts with."""

    model_config = ConfigDict(extra="forbid", strict=True)

    schema_name: str = Field(alias="schema", description="gemmule/COMMAND/VERSION of the schema")
    version: str = Field(description="version of gemmule")
    config: str | None = Field(description="name of the configuration; null if the command uses none")
    config_sha256: str | None = Field(
        description="SHA-256 of the configuration as JSON with all fields, keys sorted, without spaces")
