"""What ``--json`` writes, as one pydantic model per command: checked when written; schemas are in docs/schemas."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from gemmule import __version__
from gemmule.config import Config
from gemmule.sw.errors import InputError
from gemmule.sw.records.decoding import Bench, Generate, Prune, TreeShape
from gemmule.sw.records.record import Record
from gemmule.sw.records.search import Search
from gemmule.sw.records.serving import Serve
from gemmule.sw.records.tools import (
    CacheClear,
    CacheShow,
    Cosim,
    DatastoreOutput,
    Disasm,
    Driver,
    Formal,
    Fuzz,
    Header,
    Mutate,
    Synth,
    SynthCells,
    Verilog,
)
from gemmule.sw.records.workloads import (
    CompileModel,
    Import,
    Info,
    RunArch,
    RunGemm,
    RunModel,
    StudyOutput,
    SweepOutput,
)

__all__ = ["RECORDS", "Record", "check", "complete"]

RECORDS: dict[str, type[Record]] = {
    "generate": Generate, "bench": Bench, "serve": Serve, "search": Search, "prune": Prune, "tree": TreeShape,
    "import": Import, "compile": CompileModel,
    "run-gemm": RunGemm, "run-model": RunModel, "run-arch": RunArch, "sweep": SweepOutput, "study": StudyOutput,
    "info": Info, "cosim": Cosim, "fuzz": Fuzz, "mutate": Mutate, "formal": Formal, "verilog": Verilog,
    "header": Header, "driver": Driver, "synth": Synth, "synth-cells": SynthCells, "disasm": Disasm,
    "datastore": DatastoreOutput, "cache-show": CacheShow, "cache-clear": CacheClear,
}
"""Models by command. A changed name or meaning of a field needs a new version of the schema."""
VERSION = 1


def complete(command: str, config: Config | None, fields: dict[str, Any]) -> dict[str, Any]:
    """The checked output of ``command``: the common fields and ``fields``."""
    record = RECORDS[command].model_validate({
        "schema": f"gemmule/{command}/{VERSION}", "version": __version__,
        "config": config.name if config else None,
        "config_sha256": config.sha256 if config else None, **fields})
    return record.model_dump(by_alias=True, exclude_unset=True)


def check(record: dict[str, Any], where: str) -> None:
    """Refuse a record that no command of this version wrote.

    Raises:
        InputError: the schema is unknown, or the record does not follow it; names the first place that does not.
    """
    name = str(record.get("schema", ""))
    command = name.removeprefix("gemmule/").removesuffix(f"/{VERSION}")
    if name != f"gemmule/{command}/{VERSION}" or command not in RECORDS:
        raise InputError(f"{where} must be what --json of a command of this version wrote, not of schema {name!r}")
    try:
        RECORDS[command].model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: {place} does not follow {name} ({first['msg']}): write the file again") from None
