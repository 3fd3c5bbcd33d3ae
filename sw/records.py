"""What ``--json`` writes, command by command, as pydantic models: checked when written, schemas in docs/schemas."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gemmule import __version__
from gemmule.config import Config
from gemmule.sw.errors import InputError

__all__ = ["RECORDS", "Record", "check", "complete"]


class Record(BaseModel):
    """What every output begins with."""

    model_config = ConfigDict(extra="forbid", strict=True)

    schema_name: str = Field(alias="schema", description="gemmule/COMMAND/VERSION of the schema")
    version: str = Field(description="version of gemmule")
    config: str | None = Field(description="name of the configuration; null where none plays a part")
    config_sha256: str | None = Field(
        description="SHA-256 of the configuration as JSON with all fields, keys sorted, without spaces")


class Baseline(BaseModel):
    """Autoregressive decoding of the same prompt, for comparison."""

    new_tokens: int
    cycles: int
    prefill_cycles: int
    cycles_per_token: float
    tokens_per_second: float
    host_cycles: int
    cycles_by_model: dict[str, int]
    cycles_by_unit: dict[str, int]
    dram_bytes: int


class Generate(Record):
    """`gemmule generate`: one text, and what it cost."""

    model: str = Field(description="the bundled pair of target and draft that ran, or the imported target's file name")
    prompt: str
    method: Literal["ar", "draft", "pld"]
    backend: Literal["model", "rtl"]
    seed: int
    num_speculative_tokens: int = Field(description="tokens drafted a step at most; 0 with method ar")
    temperature: float = Field(description="0: greedy")
    top_k: int | None
    top_p: float | None
    verify: Literal["greedy", "match", "rejection"]
    draft_lengths: Literal["constant", "heuristic", "confidence", "cost"]
    launch: Literal["pass", "step"] = Field(description="drafts of a step: a launch each, or one for all")
    prompt_tokens: int
    tokens: list[int] = Field(description="new tokens, a stop token included")
    text: str = Field(description="text of the new tokens")
    finish_reason: Literal["length", "stop", "context"] = Field(
        description="why the text ended: --max-new-tokens, the end-of-file token, or a full context")
    clock_mhz: int
    cycles: int = Field(description="device and host")
    milliseconds: float = Field(description="cycles at clock_mhz")
    tokens_per_second: float = Field(description="new tokens over cycles at clock_mhz, prefill included")
    simulation_seconds: float = Field(description="time the simulation of this run took")
    device_cycles: int
    host_cycles: int
    prefill_cycles: int
    cycles_per_token: float
    cycles_by_model: dict[str, int]
    cycles_by_unit: dict[str, int] = Field(
        description="by unit, cycles with a command between issue and finish; they overlap")
    tokens_per_step: float
    drafted_tokens: int
    acceptance: float = Field(description="accepted over drafted tokens")
    acceptance_by_position: list[float] = Field(description="of the drafts whose predecessors were accepted")
    accept_histogram: dict[str, int] = Field(description="steps by number of accepted tokens")
    target_passes: int
    draft_passes: int
    steps: int
    dram_bytes: int
    dram_bytes_by_purpose: dict[str, int]
    dram_bound: float = Field(description="share of device cycles in which the DRAM bus moves data")
    bound: Literal["memory", "compute"] = Field(description="the busier of DRAM bus and matrix unit")
    distinct_4grams: float
    speedup_over_ar: float | None = Field(description="null without a baseline")
    same_tokens_as_ar: bool | None = Field(description="null without a baseline, and where only the law is the same")
    ar: Baseline | None = Field(description="null without a baseline, and with method ar")
    draft_cost: float | None = Field(description="cycles of a drafted token over those of an autoregressive step")
    theoretical_speedup: float | None = Field(description="from acceptance and draft_cost, without the prompt")
    decode_speedup: float | None = Field(description="measured, without the prompt")


class BenchRow(BaseModel):
    """One way to decode, on the prompts of a category (`all`: of all)."""

    method: Literal["ar", "draft", "pld", "always", "never"]
    category: str
    temperature: float
    num_speculative_tokens: int
    verify: Literal["greedy", "match", "rejection"]
    prompts: int
    equal_to_ar: int | None = Field(description="texts equal token by token; null where only the law is the same")
    speedup_over_ar: float = Field(description="mean over prompts, prompt and host counted on both sides")
    speedup_median: float
    speedup_min: float
    speedup_max: float
    slower_than_ar: float = Field(description="share of prompts")
    speedup_by_launch_cycles: dict[str, float] = Field(description="by the host's cycles a launch")
    tokens: int
    cycles_per_token: float
    tokens_per_step: float
    acceptance: float = Field(description="accepted over drafted tokens")
    acceptance_by_position: list[float] = Field(description="of the drafts whose predecessors were accepted")
    target_calls: int
    draft_calls: int
    extra_parameters: int = Field(description="weights of the draft model")
    distinct_4grams: float = Field(description="mean over prompts")
    draft_cycle_share: float = Field(description="mean over prompts, host work for its launches included")
    theoretical_speedup: float | None = Field(description="mean over prompts, without their prefill")
    decode_speedup: float | None = Field(description="measured, like it")


class BenchPrompt(BaseModel):
    """A prompt that was decoded."""

    category: str
    name: str
    tokens: int


class Bench(Record):
    """`gemmule bench`: decoding methods side by side."""

    model: str
    backend: Literal["model", "rtl"]
    seed: int
    max_new_tokens: int
    launch: Literal["pass", "step"]
    top_k: int | None
    top_p: float | None
    rows: list[BenchRow]
    prompts: list[BenchPrompt]


class SearchOfProduct(BaseModel):
    """How the mapping of a product was found."""

    method: Literal["exhaustive", "optuna", "cp-sat"]
    cycles_formula: int = Field(description="of the formula's mapping, with which every search begins")
    simulated: int = Field(description="mappings, the formula's among them")
    pruned: int = Field(description="mappings that could not win by what the mesh and the bus must do at least")
    certified: bool = Field(description="no mapping of the space takes fewer cycles")
    search_seconds: float = Field(description="when the search was made; what it found is kept in the cache folder")
    mapping: dict[str, Any] = Field(description="the one that won")
    tried: list[dict[str, Any]] | None = Field(description="with --explain: mappings, and their cycles")


class RunGemm(Record):
    """`gemmule run gemm`: one product."""

    shape: str
    dataflow: Literal["ws", "os"]
    weights: Literal["int8", "int4"]
    group_size: int
    backend: Literal["model", "rtl"]
    seed: int
    commands: int
    mapping: str
    clock_mhz: int
    cycles: int
    milliseconds: float = Field(description="cycles at clock_mhz")
    utilization: float = Field(description="MACs over cycles times MACs a cycle")
    dram_bytes: int
    roofline_cycles: float = Field(description="cycles that the operands need on the DRAM bus")
    dram_bound: float = Field(description="share of cycles in which the DRAM bus moves data")
    roofline_fraction: float = Field(description="roofline_cycles over cycles")
    bound: Literal["memory", "compute"] = Field(description="what needs more cycles at its peak: DRAM bus or mesh")
    search: SearchOfProduct | None = Field(description="null with --search formula")
    simulation_seconds: float
    correct: bool | None = Field(description="the result equals numpy's; null with --timing-only")
    counters: dict[str, dict[str, int]] = Field(description="by unit, cycles by cause (docs/registers.md)")


class LayerOfModel(BaseModel):
    """One layer of a model."""

    layer: int
    cycles: int = Field(description="from its first command to the next layer's, or to the end")


class OperatorOfModel(BaseModel):
    """One operation, in all layers."""

    name: str
    cycles: int = Field(description="from the end of the operation before to its own; they add up to all")
    matrix_cycles: int = Field(description="in which its matrix commands ran")
    vector_cycles: int
    weight_bytes: int = Field(description="of weights and parameters that it loaded")


class RunModel(Record):
    """`gemmule run model`: passes of an imported model."""

    file: str
    phase: Literal["prefill", "decode", "encode"]
    seq: int = Field(description="cached positions of decode, tokens of prefill or encode")
    rows: int = Field(description="new rows of a pass, of each sequence")
    batch: int = Field(description="sequences of a pass")
    backend: Literal["model", "rtl"]
    seed: int
    passes: int
    commands: int = Field(description="that ran")
    program_commands: int
    program_bytes: int
    compile_seconds: float
    simulation_seconds: float
    cycles: int
    milliseconds: float = Field(description="cycles at clock_mhz")
    utilization: float = Field(description="MACs over cycles times MACs a cycle")
    roofline_cycles: float = Field(description="weights, KV, inputs and outputs once, from the network alone")
    roofline_fraction: float
    dram_bytes: int
    dram_bytes_by_purpose: dict[str, int]
    scores: Literal["kept", "computed twice"]
    layers: list[LayerOfModel]
    operators: list[OperatorOfModel]
    output_equals_interpreter: bool | None = Field(description="null with --timing-only")


class OperatorByShape(OperatorOfModel):
    """One operation, and what it needs."""

    macs: int
    network_bytes: int = Field(description="weights, KV, inputs and outputs once, from the network alone")


class SweepPoint(BaseModel):
    """One length of a sweep: what `gemmule run arch` says of it, in short."""

    value: int
    phase: Literal["prefill", "decode", "encode"]
    cycles: int
    milliseconds: float
    macs: int
    network_bytes: int
    operations_per_byte: float = Field(description="two a multiply-accumulate, over network_bytes")
    utilization: float
    roofline_fraction: float
    parameters: int
    cycles_per_token: float
    cycles_by_operator: dict[str, int]


class RunArch(Record):
    """`gemmule run arch`: passes of a known architecture, by shape alone."""

    architecture: str
    source: str = Field(description="where its config.json stands")
    parameters: int = Field(description="numbers of all tensors that the network reads, a tied head once")
    network_layers: int
    phase: Literal["prefill", "decode", "encode"]
    seq: int = Field(description="cached positions of decode, tokens of prefill")
    rows: int = Field(description="new rows of a pass, of each sequence")
    batch: int = Field(description="sequences of a pass")
    bits: Literal["int8", "int4"]
    head_bits: Literal["int8", "int4"]
    group: int = Field(description="rows of depth that share an int4 scale; 0: none")
    context: int = Field(description="most positions that the program takes")
    effort: int
    passes: int
    commands: int = Field(description="that ran")
    program_commands: int
    program_bytes: int
    compile_seconds: float
    simulation_seconds: float = Field(description="of all passes, warm")
    clock_mhz: int
    cycles: int
    host_cycles: int = Field(description="launches and steps of the host, beside cycles")
    milliseconds: float = Field(description="cycles at clock_mhz")
    tokens_per_second: float = Field(description="new rows over cycles and host_cycles at clock_mhz")
    macs: int
    network_bytes: int = Field(description="weights, KV, inputs and outputs once, from the network alone")
    utilization: float = Field(description="MACs over cycles times MACs a cycle")
    roofline_cycles: float = Field(description="cycles of network_bytes at peak bandwidth outside refresh")
    roofline_fraction: float
    dram_bytes: int
    dram_bytes_by_purpose: dict[str, int]
    scores: Literal["kept", "computed twice"]
    layers: list[LayerOfModel]
    operators: list[OperatorByShape]
    sweep: list[SweepPoint] | None = Field(description="with --sweep: decode and prefill of each value")


class SweepRow(BaseModel):
    """One point; numbers are null where it has an error."""

    run: str
    config: dict[str, Any] = Field(description="fields that the sweep sets, and `config`, which has the others")
    workload: dict[str, Any]
    config_sha256: str | None = Field(description="of all fields; null where they break a rule")
    name: str = Field(description="of the workload")
    error: str | None
    mesh: int | None = Field(description="multipliers")
    memory_bits: int | None = Field(description="of scratchpad and accumulator")
    cycles: int | None
    milliseconds: float | None
    utilization: float | None
    roofline_fraction: float | None
    dram_bytes: int | None
    macs: int | None
    seconds: float = Field(description="that the point took, compilation included")
    version: str
    finished: str = Field(description="UTC")
    pareto: bool = Field(description="no other point of its workload beats it in cycles and cost")


class SweepOutput(Record):
    """`gemmule sweep`: a grid of configurations with workloads."""

    file: str
    db: str
    run: str
    engine: Literal["local", "ray", "dask"]
    jobs: int
    cost: Literal["mesh", "memory_bits"]
    points: int
    evaluated: int = Field(description="of them by this command; the others were there")
    rows: list[SweepRow]
    differing: list[dict[str, Any]] | None = Field(description="with --compare: points whose cycles or errors differ")


class MemoryOfDevice(BaseModel):
    """One memory."""

    name: str
    bytes: int
    rows: int | None
    banks: int
    read_bytes_per_cycle: float = Field(description="all ports together")
    write_bytes_per_cycle: float


class NetworkThatFits(BaseModel):
    """A known architecture on this device, int8."""

    name: str
    parameters: int
    weight_bytes: int | None = Field(description="with column parameters; null: no importer reads it")
    kv_bytes_per_position: int | None = Field(description="of the cache, heads padded to whole rows")
    tokens_per_second_at_most: float | None = Field(description="the roofline's, behind no context")
    context: int = Field(description="the longest; 0: it does not fit")
    limit: str = Field(description="what the context is limited by, or why it does not fit")


class Info(Record):
    """`gemmule info`: a device's sizes."""

    clock_mhz: int
    macs_per_cycle: int
    macs_per_second: float
    dram_bytes_per_cycle: float = Field(description="outside refresh")
    dram_bytes_per_second: float
    ridge_macs_per_byte: float
    memories: list[MemoryOfDevice]
    networks: list[NetworkThatFits] | None = Field(description="null with --no-networks")


class CompileModel(Record):
    """`gemmule compile`: an imported model as a program."""

    file: str
    rows: int = Field(description="most new rows of a pass")
    context: int = Field(description="most positions, cached and new ones")
    answers: Literal["tokens", "logits"]
    commands: int
    program_bytes: int
    compile_seconds: float = Field(description="verification included")
    dram_bytes: int
    regions: dict[str, int] = Field(description="bytes of each DRAM region")
    scores: Literal["kept", "computed twice"]
    mapping: dict[str, Any] | None = Field(description="with --explain or --dump-passes")
    tried: list[dict[str, Any]] | None = Field(description="mappings that did not fit, and why; likewise")


class Import(Record):
    """`gemmule import`: a quantised checkpoint."""

    directory: str
    out: str
    bytes: int = Field(description="of the file")
    family: str
    layers: int
    vocab: int
    positions: int
    parameters: int
    bits: Literal["int8", "int4"]
    group: int = Field(description="rows of depth that share an int4 scale; 0: none")
    method: Literal["nearest", "second-order"]
    smooth: bool
    seed: int
    window: int = Field(description="tokens of a window")
    calibration_windows: int
    evaluation_windows: int
    perplexity_float: float | None = Field(description="null for encoders")
    perplexity_int: float | None
    layer_error: list[float] = Field(description="relative RMS of each layer's output, from float values before it")
    logits_error: float = Field(
        description="relative RMS of the output (logits, an encoder's hidden rows), everything in integers")
    cosine_mean: float | None = Field(
        description="of an encoder's output rows in float and in integers, on average; null for decoders")
    cosine_least: float | None = Field(description="of the row that is farthest off")
    node_error: dict[str, float] = Field(description="relative RMS of each operation, from float values before it")


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


RECORDS: dict[str, type[Record]] = {
    "generate": Generate, "bench": Bench, "import": Import, "compile": CompileModel, "run-gemm": RunGemm,
    "run-model": RunModel, "run-arch": RunArch, "sweep": SweepOutput, "info": Info, "cosim": Cosim, "fuzz": Fuzz,
    "mutate": Mutate, "verilog": Verilog, "synth": Synth, "disasm": Disasm, "cache-show": CacheShow,
    "cache-clear": CacheClear,
}
"""By command; a change of a field's name or meaning is a new version of the schema."""
VERSION = 1


def complete(command: str, config: Config | None, fields: dict[str, Any]) -> dict[str, Any]:
    """The output of ``command``: the common head and ``fields``, checked."""
    record = RECORDS[command].model_validate({
        "schema": f"gemmule/{command}/{VERSION}", "version": __version__,
        "config": config.name if config else None,
        "config_sha256": config.sha256 if config else None, **fields})
    return record.model_dump(by_alias=True, exclude_unset=True)


def check(record: dict[str, Any], where: str) -> None:
    """Refuse what no command of this version wrote.

    Raises:
        InputError: the schema is not known, or the record does not follow it; the first place is named.
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
