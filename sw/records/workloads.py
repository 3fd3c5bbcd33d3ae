"""What runs and sweeps of workloads say with ``--json``, what fits a device, and models made for it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gemmule.sw.records.record import Record

__all__ = ["CompileModel", "Import", "Info", "RunArch", "RunGemm", "RunModel", "StudyOutput", "SweepOutput"]


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
    attention: Literal["exact", "standard", "online"] = Field(
        description="standard: scores and probabilities through DRAM; online: by blocks of keys")
    softmax: Literal["exact", "softermax", "ibert"] = Field(description="its exponential")
    activation: Literal["table", "word", "ibert"] = Field(
        description="activation functions: 256 bytes, 513 words with lines between them, or I-BERT's polynomial")
    fusion: Literal["on", "off"] = Field(
        description="off: every operator's result goes to DRAM and comes back")
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
    scores: Literal["kept", "computed twice", "through DRAM", "seen once"]
    layers: list[LayerOfModel]
    operators: list[OperatorOfModel]
    labels: dict[str, float] | None = Field(description="share of each label, best first; null without --text")
    kept_rows_by_layer: list[int] | None = Field(
        description="rows that each layer leaves of the sequence; null without --prune, as are the next two")
    topk_cycles: int | None = Field(description="in which the select unit chose them")
    topk_exposed_cycles: int | None = Field(description="of these, in which no other unit ran a command")
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


class PhaseSearch(BaseModel):
    """One fused phase of a layer, alone."""

    phase: str
    cycles: int = Field(description="of the best mapping, from DRAM and back")
    cycles_first: int = Field(description="of the first mapping that fits")
    bound: int = Field(description="no mapping takes fewer, whatever else happens")
    simulated: int
    pruned: dict[str, int] = Field(description="mappings that were not simulated, by the bound that ruled them out")
    certified: bool = Field(description="the best mapping is the optimum of the space")
    search_seconds: float
    mapping: dict[str, Any]
    tried: list[dict[str, Any]]


class WholeLayer(BaseModel):
    """The phases' best mappings in one program, their borders included."""

    cycles: int
    bound: int = Field(description="no mapping of the layer takes fewer, whatever its borders hide")
    bound_by: str


class LayerSearch(BaseModel):
    """A search of an encoder's mapping, phase by phase."""

    method: str
    phases: list[PhaseSearch]
    layer: WholeLayer
    explained: list[str] = Field(description="the same for people")


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
    attention: Literal["exact", "standard", "online"] = Field(
        description="standard: scores and probabilities through DRAM; online: by blocks of keys")
    softmax: Literal["exact", "softermax", "ibert"] = Field(description="its exponential")
    activation: Literal["table", "word", "ibert"] = Field(
        description="activation functions: 256 bytes, 513 words with lines between them, or I-BERT's polynomial")
    fusion: Literal["on", "off"] = Field(
        description="off: every operator's result goes to DRAM and comes back")
    search: LayerSearch | None = Field(description="with --search")
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
    scores: Literal["kept", "computed twice", "through DRAM", "seen once"]
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


class StudyRow(BaseModel):
    """One figure of a study."""

    setting: str
    published: float | None = Field(description="null where nobody told it")
    here: float = Field(description="on this device")
    unit: str = Field(description="of both: cycles, bytes, times, share ..")
    why: str = Field(description="what is compared, and what makes the difference")


class StudyOutput(Record):
    """`gemmule study`: a published table or figure again."""

    study: str
    title: str
    source: str = Field(description="where it is published")
    rows: list[StudyRow]


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
    scores: Literal["kept", "computed twice", "through DRAM", "seen once"]
    mapping: dict[str, Any] | None = Field(description="with --explain or --dump-passes")
    tried: list[dict[str, Any]] | None = Field(description="mappings that did not fit, and why; likewise")


class TextLikeness(BaseModel):
    """Both networks on one kind of text."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tokens: int = Field(description="predicted ones")
    perplexity_float: float
    perplexity_int: float
    kl_mean: float
    top1_agreement: float


class Import(Record):
    """`gemmule import`: a quantised checkpoint."""

    source: str
    out: str
    written: bool = Field(description="false where the file is not usable and --force was not given")
    usable: bool
    why_unusable: str | None
    seconds: float
    peak_memory: int | None = Field(description="bytes, mapped files included; null where the system does not tell")
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
    prefix: list[int] = Field(description="tokens whose keys and values stand in front of every sequence")
    rotate: bool
    residual: Literal["one", "layer"]
    inner: Literal[8, 16] = Field(description="bits of values within the MLP")
    down: Literal["int8", "int4"] | None = Field(description="weights behind them; null: as bits")
    attention: Literal["exact", "online"]
    softmax: Literal["exact", "softermax", "ibert"]
    activation: Literal["table", "word", "ibert"]
    seed: int
    window: int = Field(description="tokens of a window")
    calibration_windows: int
    evaluation_windows: int
    perplexity_float: float | None = Field(description="null for encoders")
    perplexity_int: float | None
    kl_mean: float | None = Field(description="mean divergence of the integers' predictions from float's, in nats")
    top1_agreement: float | None = Field(description="share of tokens at which both have the same best token")
    kinds: dict[str, TextLikeness] = Field(description="the same by kind of text; empty for encoders")
    layer_error: list[float] = Field(description="relative RMS of each layer's output, from float values before it")
    layer_drift: list[float] = Field(
        description="relative error of each layer's output, everything in integers: the median of the rows")
    logits_error: float = Field(
        description="relative RMS of the output (logits, an encoder's hidden rows), everything in integers")
    cosine_mean: float | None = Field(
        description="of an encoder's output rows in float and in integers, on average; null for decoders")
    cosine_least: float | None = Field(description="of the row that is farthest off")
    node_error: dict[str, float] = Field(description="relative RMS of each operation, from float values before it")
