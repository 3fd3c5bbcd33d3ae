"""What a sweep is: fields with their values and workloads, from a YAML file."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.config import Config, Dram, Host
from gemmule.io.fields import first_problem
from gemmule.io.reading import ReadError, named, shown
from gemmule.io.yaml_file import read_yaml
from gemmule.sw.errors import InputError
from gemmule.sw.limits import ARCHITECTURES

__all__ = ["Sweep", "Workload", "read_sweep"]

MOST_POINTS = 100_000
_SIZED = ("layers", "hidden", "positions", "vocab")
Count = Annotated[int, Field(ge=1, le=1 << 20)]


class Workload(BaseModel):
    """A product by ``gemm`` (MxKxN), or passes of a known architecture by ``arch``; sizes of it may be changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    gemm: str | None = None
    arch: str | None = None
    phase: Literal["auto", "prefill", "decode", "encode"] = "auto"
    seq: Annotated[int, Field(ge=0, le=1 << 16)] = 128
    rows: Annotated[int, Field(ge=0, le=256)] = 0
    batch: Annotated[int, Field(ge=1, le=16)] = 1
    bits: Literal["int8", "int4"] = "int8"
    head_bits: Literal["int8", "int4"] = "int8"
    context: Annotated[int, Field(ge=0, le=1 << 16)] = 0
    layers: Count | None = None
    hidden: Count | None = None
    positions: Count | None = None
    vocab: Count | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.gemm is None) is (self.arch is None):
            raise ValueError("a workload must be a gemm or an arch, one of both")
        if self.arch is not None and self.arch not in ARCHITECTURES:
            raise ValueError(f"arch must be one of {', '.join(ARCHITECTURES)}, not {shown(self.arch)}")
        if self.gemm is not None:
            from gemmule.sw.limits import parse_shape

            parse_shape(self.gemm, "gemm")
            if extra := sorted(self.model_fields_set - {"gemm", "bits"}):
                raise ValueError(f"{extra[0]} is not for gemm; leave it out")
        return self

    @property
    def text(self) -> str:
        """All that is set, as JSON: what the workload is known by."""
        return json.dumps(self.model_dump(exclude_unset=True), sort_keys=True)

    @property
    def name(self) -> str:
        """For people and figures."""
        if self.gemm:
            return f"gemm {self.gemm}" + (f" {self.bits}" if self.bits != "int8" else "")
        said = [f"{key} {value}" for key, value in self.model_dump(exclude_unset=True).items()
                if key not in ("arch", "phase", "bits", "head_bits")]
        bits = [self.bits] if self.bits != "int8" else []
        phase = [self.phase] if self.phase != "auto" else []
        return " ".join([str(self.arch), *phase, *said, *bits])

    def _network(self) -> Architecture:
        found = architecture(str(self.arch))
        for part in _SIZED:
            if (value := getattr(self, part)) is not None:
                found = found.resized(part, value)
        return found

    def run(self, device: Config) -> dict[str, Any]:
        """Cycles and what else a sweep keeps.

        Raises:
            CompileError, InputError: it does not fit.
        """
        if self.gemm:
            return _product(device, self.gemm, self.bits)
        from gemmule.sw.workloads.architectures import Work, run_architecture

        record = run_architecture(self._network(), device, Work(
            phase=self.phase, seq=self.seq, rows=self.rows, batch=self.batch, bits=self.bits, head_bits=self.head_bits,
            context=self.context), keep=False)
        return {key: record[key] for key in (
            "cycles", "milliseconds", "utilization", "roofline_fraction", "dram_bytes", "macs")}


def _product(device: Config, shape: str, bits: str) -> dict[str, Any]:
    from gemmule.compiler.layout import WeightFormat
    from gemmule.compiler.program import NO_DRAM
    from gemmule.compiler.programs.product import compile_product
    from gemmule.sim.roofline import roofline_cycles
    from gemmule.sim.simulator import Simulator

    sizes = [int(part) for part in shape.split("x")]
    program = compile_product(device, *sizes, weights=WeightFormat(int(bits.removeprefix("int"))))
    simulator = Simulator(device, dram_bytes=1)
    simulator.load(program.launch("gemm", NO_DRAM, program.registers()))
    result = simulator.run(timing_only=True)
    return {"cycles": result.cycles, "milliseconds": result.cycles / device.host.clock_mhz / 1000,
            "utilization": program.utilization(result.cycles),
            "roofline_fraction": roofline_cycles(program.roofline_bytes, device) / result.cycles,
            "dram_bytes": program.dram_bytes, "macs": prod(sizes)}


class Sweep(BaseModel):
    """The file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    config: str
    """Preset or YAML file that has all other fields."""
    fields: dict[str, list[int | bool]]
    """Values by field, ``dram.latency`` for one of the DRAM."""
    workloads: Annotated[list[Workload], Field(min_length=1)]

    @property
    def size(self) -> int:
        """Points."""
        return prod(map(len, self.fields.values())) * len(self.workloads)


def _flat(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Nested fields by dotted names, single values as lists of one."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value if isinstance(value, list) else [value]
    return found


def read_sweep(path: Path) -> Sweep:
    """Read and check a sweep file; every combination of values with every workload is a point.

    Raises:
        InputError: one line that names file, line, value and rule.
    """
    try:
        file = read_yaml(path, lists=True)
    except ReadError as error:
        raise InputError(f"{named(path, error.line)}: {error}") from None
    values = dict(file.values)
    fields = values.get("fields", {})
    values["fields"] = _flat(fields) if isinstance(fields, dict) else fields
    values.setdefault("config", "base")
    try:
        sweep = Sweep.model_validate(values)
    except ValidationError as error:
        where, text = first_problem(error, Sweep)
        raise InputError(f"{named(path, file.lines.get(where))}: {text}") from None
    inner: dict[str, type[BaseModel]] = {"dram": Dram, "host": Host}
    known = set(Config.model_fields) - {"name", *inner}
    known |= {f"{part}.{name}" for part, record in inner.items() for name in record.model_fields}
    for name, found in sweep.fields.items():
        at = named(path, file.lines.get(f"fields.{name}"))
        if name not in known:
            raise InputError(f"{at}: {name} must be a field of a configuration (docs/configuration.md)")
        if not found or len(set(found)) != len(found):
            raise InputError(f"{at}: {name} must have values, each once, not {shown(str(found))}")
    if sweep.size > MOST_POINTS:
        raise InputError(f"{named(path)}: a sweep must have at most {MOST_POINTS:,} points, not {sweep.size:,}")
    return sweep
