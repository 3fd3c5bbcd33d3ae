"""What the tools of the RTL and of programs say with ``--json``, and the cache."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from gemmule.sw.records.record import Record

__all__ = ["CacheClear", "CacheShow", "Cosim", "Disasm", "Fuzz", "Mutate", "Synth", "Verilog"]


class Cosim(Record):
    """`gemmule cosim`: one program on RTL and model."""

    program: str
    seed: int
    commands: int
    cycles_model: int
    cycles_rtl: int
    byte_differences: int
    cycle_differences: int
    counter_differences: int
    waveform: str | None = Field(description="an FST file")
    layout: str | None = Field(description="signals for GTKWave")


class Fuzz(Record):
    """`gemmule fuzz`: random programs on RTL and model."""

    seed: int
    programs: int
    commands: int = Field(description="of all programs")
    cycles: int
    seconds: float
    byte_differences: int
    cycle_differences: int
    coverage: dict[str, Any] = Field(description="what was counted, commands by kind and mode first")
    missing: list[str] = Field(description="coverage below its minimum")
    failures: list[str]


class MutantsOfUnit(BaseModel):
    """Mutants of one unit, or of all."""

    cells: int = Field(description="of the optimised netlist, by Yosys' own kinds")
    mutants: int
    killed: int
    equal: int = Field(description="survivors that are proved to change nothing")
    open: int = Field(description="survivors without a proof")
    rate: float = Field(description="killed over mutants that are not proved equal")


class Survivor(BaseModel):
    """A mutant that no check noticed."""

    number: int
    unit: str
    mode: str = Field(description="inv, const0, const1; cnot0, cnot1: inverted where another bit is 0, 1")
    place: str = Field(description="cell, port and bit, as Yosys names them")
    wire: str | None = Field(description="signal that the bit belongs to, where it has a name")
    source: list[str] = Field(description="lines of Python that the cell comes from")
    equal: str | None = Field(description="how it is proved to change nothing; null: open")


class Mutate(Record):
    """`gemmule mutate`: faults planted in the RTL."""

    seed: int
    programs: int = Field(description="that a mutant must pass to survive, beside the directed checks")
    commands: int = Field(description="of a program, about")
    tools: dict[str, str]
    netlist: str = Field(description="SHA-256 of the Verilog with all mutants")
    units: dict[str, MutantsOfUnit]
    total: MutantsOfUnit
    killed_by: dict[str, int] = Field(description="mutants by the check that noticed them first")
    survivors: list[Survivor]


class Verilog(Record):
    """`gemmule verilog`: the exported files."""

    path: str = Field(description="the file, or the list of files of --split")
    files: list[str]
    manifest: str
    bytes: int = Field(description="of all files")
    lint: Literal["clean"] | None


class SynthArea(BaseModel):
    """Cells of a mapped netlist."""

    comb: int = Field(description="LUT4 sites")
    lut4: int
    ccu2c: int
    lutram: int
    ff: int
    dsp: int
    bram: int
    route: dict[str, Any] | None = None


class SynthWhole(BaseModel):
    """The device by unit."""

    total: SynthArea
    parts: dict[str, SynthArea]
    route: dict[str, Any] | None = None


class Synth(Record):
    """`gemmule synth`: area on an FPGA and, routed, Fmax."""

    configuration: dict[str, Any] = Field(description="all fields")
    target: str
    tools: dict[str, str]
    memories: Literal["black boxes", "block RAM"]
    alone: dict[str, SynthArea] | None = None
    whole: SynthWhole | None = None


class Disasm(Record):
    """`gemmule disasm`: a listing."""

    commands: int
    listing: list[str]


class Kept(BaseModel):
    """One thing in the cache."""

    path: str
    kind: str
    config: str = Field(description="name of the configuration or the block; empty where it belongs to none")
    bytes: int
    age_days: float = Field(description="since the last use of a simulator, or since anything else was made")
    in_use: bool


class CacheShow(Record):
    """`gemmule cache show`: what is kept."""

    folder: str
    bytes: int
    entries: list[Kept]


class CacheClear(Record):
    """`gemmule cache clear`: what was removed."""

    folder: str
    bytes_freed: int
    in_use: int = Field(description="entries that stayed because a running process has them")
    removed: list[Kept]
