"""What ``--json`` writes for the tools of the RTL, for `disasm` and for the cache."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from gemmule.sw.records.record import Record

__all__ = ["CacheClear", "CacheShow", "Cosim", "DatastoreOutput", "Disasm", "Driver", "Formal", "Fuzz", "Header",
           "Mutate", "Synth", "Verilog"]


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
    waveform: str | None = Field(description="path of the waveform, an FST file")
    layout: str | None = Field(description="path of the signal list for GTKWave")
    trace: str | None = Field(None, description="path of the RTL run's trace, for ui.perfetto.dev")


class Fuzz(Record):
    """`gemmule fuzz`: random programs on RTL and model."""

    seed: int
    programs: int
    commands: int = Field(description="commands of all programs")
    cycles: int
    seconds: float
    byte_differences: int
    cycle_differences: int
    coverage: dict[str, Any] = Field(description="what was counted; commands by kind and mode come first")
    missing: list[str] = Field(description="coverage items below their minimum")
    failures: list[str]


class FormalProperty(BaseModel):
    """What holds of a component in every cycle."""

    name: str
    text: str
    proof: Literal["for all time", "bounded", "fails"]
    depth: int = Field(description="cycles of the bounded check; for all time: of the base of the induction")
    fault: str | None = Field(description="the planted fault with which it must fail; null: none was planted")
    found: bool = Field(description="it fails with the planted fault")
    found_in: int = Field(description="cycles from the reset to that failure")


class FormalTarget(BaseModel):
    """One component under proof."""

    unit: str = Field(description="its source, below hw")
    device: str
    sizes: str = Field(description="sizes other than those of the device; empty: none")
    properties: list[FormalProperty]
    lemmas: int = Field(description="statements about registers inside, proved with the properties")
    trusted: dict[str, str] = Field(description="assumptions about what is around the component, by name")
    unreached: list[str] = Field(description="situations without a way to them; they show that a proof is not empty")
    failed: list[str] = Field(description="assertions that failed, with the cycle and the trace")
    passed: bool
    seconds: float


class Formal(Record):
    """`gemmule formal`: proofs about the units of the RTL."""

    tools: dict[str, str]
    targets: dict[str, FormalTarget]
    passed: bool = Field(description="everything holds, is not empty, and every planted fault is found")
    seconds: float


class MutantsOfUnit(BaseModel):
    """Mutants of one unit, or of all units."""

    cells: int = Field(description="cells of the optimised netlist, in Yosys' own cell types")
    mutants: int
    killed: int
    equal: int = Field(description="survivors proved to change nothing")
    open: int = Field(description="survivors without a proof")
    rate: float = Field(description="killed mutants divided by mutants not proved equal")


class Survivor(BaseModel):
    """A mutant that no check noticed."""

    number: int
    unit: str
    mode: str = Field(description="inv, const0, const1; cnot0, cnot1: inverted if another bit is 0, 1")
    place: str = Field(description="cell, port and bit, as Yosys names them")
    wire: str | None = Field(description="signal that the bit belongs to; null if it has no name")
    source: list[str] = Field(description="lines of Python that the cell was generated from")
    equal: str | None = Field(description="how it was proved to change nothing; null: no proof")


class Mutate(Record):
    """`gemmule mutate`: faults planted in the RTL."""

    seed: int
    programs: int = Field(
        description="random programs that a mutant must pass to survive, in addition to the directed checks")
    commands: int = Field(description="approximate number of commands per program")
    tools: dict[str, str]
    netlist: str = Field(description="SHA-256 of the Verilog with all mutants")
    units: dict[str, MutantsOfUnit]
    total: MutantsOfUnit
    killed_by: dict[str, int] = Field(description="mutants by the check that noticed them first")
    survivors: list[Survivor]


class Verilog(Record):
    """`gemmule verilog`: the exported files."""

    path: str = Field(description="the file, or with --split the list of files")
    files: list[str]
    manifest: str
    bytes: int = Field(description="size of all files")
    lint: Literal["clean"] | None


class Header(Record):
    """`gemmule header`: the C header."""

    path: str
    bytes: int
    constants: int
    configuration: int = Field(description="what the register CONFIGURATION reads")


class DriverRun(BaseModel):
    """The driver in C on the Verilog."""

    wait: Literal["irq", "poll"]
    tokens: list[int]
    launches: int
    device_cycles: int = Field(description="of all launches, as the device counts them")
    host_cycles: int = Field(description="further cycles of the clock: register accesses, polling, reset")
    last_launch: dict[str, int] = Field(description="its cycles and counters")


class SystemRun(BaseModel):
    """The driver as firmware of the small system."""

    tokens: list[int] = Field(description="printed on the UART")
    launches: int
    device_cycles: int = Field(description="of all launches, as the device counts them")
    host_cycles: int = Field(description="further cycles of the clock: the core's boot, copies, registers and printing")
    interrupts: int = Field(description="that the core took")


class Driver(Record):
    """`gemmule driver`: a decoder for a host in C, and with --run and --soc its runs."""

    model: str
    network: Literal["target", "draft"]
    answers: Literal["tokens", "logits"]
    prompt_tokens: int
    files: list[str] = Field(description="what was written; the last one is the image")
    image_bytes: int
    runs: list[DriverRun] | None
    soc: SystemRun | None
    backend: str | None = Field(description="what the runs are compared with; tokens to launches are its")
    tokens: list[int] | None
    text: str | None
    device_cycles: int | None
    launches: int | None
    equal: bool | None = Field(description="all runs have these tokens, launches and device cycles")


class SynthArea(BaseModel):
    """Cells of a mapped netlist."""

    comb: int = Field(description="LUT4 sites")
    lut4: int
    carry: int
    lutram: int
    ff: int
    dsp: int
    bram: int
    route: dict[str, Any] | None = None


class SynthWhole(BaseModel):
    """The device, unit by unit."""

    total: SynthArea
    parts: dict[str, SynthArea]
    route: dict[str, Any] | None = None


class Synth(Record):
    """`gemmule synth`: area on an FPGA and, if routed, Fmax."""

    configuration: dict[str, Any] = Field(description="all fields of the configuration")
    target: str
    tools: dict[str, str]
    memories: Literal["black boxes", "block RAM"]
    caveats: list[str] = Field([], description="what the target's numbers leave out")
    alone: dict[str, SynthArea] | None = None
    whole: SynthWhole | None = None


class CellsArea(BaseModel):
    """What a unit takes of a library of standard cells."""

    um2: float = Field(description="of standard cells")
    registers_um2: float = Field(description="of these, flip-flops")
    cells: int
    macros_um2: float = Field(description="of memories, by the outside model")
    macro_bits: int
    gate_equivalents: int = Field(description="area of cells over that of a NAND2")


class CellsPath(BaseModel):
    """A path from a register, macro or port to another."""

    start: str
    end: str
    start_unit: str
    end_unit: str
    ends: tuple[str, str] = Field(description="what it begins and ends in: register, macro or port")
    ns: float = Field(description="the period that it needs: clock to output, cells, setup; no wires")
    mhz: float


class CellsUnit(BaseModel):
    """A unit or the device in standard cells."""

    total: CellsArea
    parts: dict[str, CellsArea]
    nand2_um2: float
    slowest: CellsPath
    registers: CellsPath | None = Field(description="the slowest between flip-flops")
    pairs: list[CellsPath] = Field(description="the slowest path of each of the ten slowest pairs of units")


class SynthCells(Record):
    """`gemmule synth --target` with a library of standard cells: area and delay before layout."""

    configuration: dict[str, Any] = Field(description="all fields of the configuration")
    target: str
    library: str = Field(description="process, corner, voltage, temperature")
    tools: dict[str, str | None]
    macros: str = Field(description="where the outside model of memories comes from")
    units: dict[str, CellsUnit]


class Disasm(Record):
    """`gemmule disasm`: a listing."""

    commands: int
    listing: list[str]


class DatastoreOutput(Record):
    """`gemmule datastore`: texts to draft from."""

    model: str
    corpus: str
    tokens: int
    bytes: int = Field(description="of the file")
    path: str
    digest: str = Field(description="SHA-256 of the tokens")


class Kept(BaseModel):
    """One entry of the cache."""

    path: str
    kind: str
    config: str = Field(description="name of the configuration or block; empty if it belongs to none")
    bytes: int
    age_days: float = Field(description="days since a simulator was last used, or since any other entry was made")
    in_use: bool


class CacheShow(Record):
    """`gemmule cache show`: the content of the cache."""

    folder: str
    bytes: int
    entries: list[Kept]


class CacheClear(Record):
    """`gemmule cache clear`: what was removed."""

    folder: str
    bytes_freed: int
    in_use: int = Field(description="entries kept because a running process uses them")
    removed: list[Kept]
