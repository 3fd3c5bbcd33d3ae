"""What ``--json`` writes for runs and sweeps of workloads, for `info`, and for `import` and `compile`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gemmule.sw.records.decoding import Pruning
from gemmule.sw.records.energy import Energy
from gemmule.sw.records.record import Record

__all__ = ["CompileModel", "Import", "Info", "RunArch", "RunGemm", "RunModel", "StudyOutput", "SweepOutput"]


class SearchOfProduct(BaseModel):
    """How the mapping of a product was found."""

    method: Literal["exhaustive", "optuna", "cp-sat"]
    cycles_formula: int = Field(description="cycles of the formula's mapping, where every search starts")
    simulated: int = Field(description="number of mappings simulated, the formula's included")
    pruned: int = Field(description="number of mappings ruled out by a lower bound on mesh and bus cycles")
    certified: bool = Field(description="whether it is proved that no mapping of the space takes fewer cycles")
    search_seconds: float = Field(
        description="duration of the search when it was run; its result is kept in the cache folder")
    mapping: dict[str, Any] = Field(description="the mapping with the fewest cycles")
    tried: list[dict[str, Any]] | None = Field(description="with --explain: the mappings tried, with their cycles")


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
    utilization: float = Field(description="MACs divided by cycles times MACs per cycle")
    dram_bytes: int
    roofline_cycles: float = Field(description="cycles that the operands need on the DRAM bus")
    dram_bound: float = Field(description="share of cycles in which the DRAM bus moves data")
    roofline_fraction: float = Field(description="roofline_cycles divided by cycles")
    bound: Literal["memory", "compute"] = Field(
        description="memory if the DRAM bus needs more cycles at its peak than the mesh, else compute")
    search: SearchOfProduct | None = Field(description="null with --search formula")
    simulation_seconds: float
    correct: bool | None = Field(description="whether the result equals numpy's; null with --timing-only")
    counters: dict[str, dict[str, int]] = Field(description="for each unit, cycles by cause (docs/registers.md)")
    energy: Energy | None = Field(
        default=None, description="null: not known, as of commands with predicates on the RTL")


class LayerOfModel(BaseModel):
    """One layer of a model."""

    layer: int
    cycles: int = Field(description="cycles from its first command to that of the next layer, or to the end")


class OperatorOfModel(BaseModel):
    """One operation, in all layers."""

    name: str
    cycles: int = Field(
        description="cycles from the end of the previous operation to its own end; their sum is the total")
    matrix_cycles: int = Field(description="cycles in which its matrix commands ran")
    vector_cycles: int
    weight_bytes: int = Field(description="bytes of weights and parameters that it loaded")


class TokenPruning(BaseModel):
    """The schedule by which rows and heads leave an encoder."""

    layers: list[float | int] = Field(description="by layer, rows that are left: shares of the sequence, or numbers")
    first: int = Field(description="rows that always stay: the first ones")
    last: int = Field(description="the last ones")
    importance: Literal["layer", "layers"]
    heads: list[float | int] | None = Field(
        description="by layer, heads that are left: shares of all, or numbers; null: all")


class PrunedPass(BaseModel):
    """What a schedule does to a pass; all null without --prune."""

    prune: Pruning | TokenPruning | None = Field(description="the schedule")
    kept_rows_by_layer: list[int] | None = Field(
        description="encoders: rows that each layer leaves of the sequence; decoders: rows of each KV head that a "
                    "selection keeps")
    kept_heads_by_layer: list[int] | None = Field(
        description="heads that each layer of an encoder leaves to the next; null where none may leave")
    kv_bytes: int | None = Field(
        description="keys and values that attention reads, all layers; decoders: with the pass's share of a selecting "
                    "pass")
    kv_bytes_dense: int | None = Field(description="the same of the dense pass")
    cycles_dense: int | None = Field(description="cycles of the dense pass, timing alone")
    selection_cycles: int | None = Field(
        description="of a selection, with the host's launches; null for encoders, which choose within the pass")
    cycles_with_selection: int | None = Field(description="cycles, with the pass's share of a selection")
    topk_cycles: int | None = Field(description="of the select unit's TOP_K: of the pass, for decoders of a selection")
    topk_exposed_cycles: int | None = Field(description="of these, in which no other unit ran a command")
    dropped_probability: float | None = Field(
        description="share of the probability that a selection drops, among random rows; null: not known, as with "
                    "timing alone, and for encoders")


class RunModel(PrunedPass, Record):
    """`gemmule run model`: passes of an imported model."""

    file: str
    phase: Literal["prefill", "decode", "encode"]
    seq: int = Field(description="cached positions of decode, tokens of prefill or encode")
    rows: int = Field(description="new rows per pass and sequence")
    batch: int = Field(description="sequences per pass")
    attention: Literal["exact", "standard", "online"] = Field(
        description="standard: scores and probabilities go through DRAM; online: one block of keys at a time")
    softmax: Literal["exact", "softermax", "ibert"] = Field(description="exponential of the softmax")
    activation: Literal["table", "word", "ibert"] = Field(
        description="activation functions. table: 256 bytes; word: 513 words, interpolated linearly; ibert: I-BERT's "
                    "polynomial")
    fusion: Literal["on", "off"] = Field(
        description="off: the result of every operator goes to DRAM and is read back")
    backend: Literal["model", "rtl"]
    seed: int
    passes: int
    commands: int = Field(description="commands executed")
    program_commands: int
    program_bytes: int
    compile_seconds: float
    simulation_seconds: float
    cycles: int
    milliseconds: float = Field(description="cycles at clock_mhz")
    utilization: float = Field(description="MACs divided by cycles times MACs per cycle")
    roofline_cycles: float = Field(
        description="cycles to move weights, KV, inputs and outputs once; follows from the network alone")
    roofline_fraction: float
    dram_bytes: int
    dram_bytes_by_purpose: dict[str, int]
    scores: Literal["kept", "kept in part", "computed twice", "through DRAM", "seen once"]
    layers: list[LayerOfModel]
    operators: list[OperatorOfModel]
    labels: dict[str, float] | None = Field(description="share of each label, best first; null without --text")
    output_equals_interpreter: bool | None = Field(description="null with --timing-only")
    energy: Energy | None = Field(default=None, description="of all passes, per new row; null: not known, as of "
                                                            "commands with predicates on the RTL")


class OperatorByShape(OperatorOfModel):
    """One operation, and its needs."""

    macs: int
    network_bytes: int = Field(
        description="bytes of weights, KV, inputs and outputs, each moved once; follows from the network alone")


class SweepPoint(BaseModel):
    """One length of a sweep: a summary of what `gemmule run arch` reports for it."""

    value: int
    phase: Literal["prefill", "decode", "encode"]
    cycles: int
    milliseconds: float
    macs: int
    network_bytes: int
    operations_per_byte: float = Field(description="two operations per multiply-accumulate, divided by network_bytes")
    utilization: float
    roofline_fraction: float
    parameters: int
    cycles_per_token: float
    cycles_by_operator: dict[str, int]


class PhaseSearch(BaseModel):
    """One fused phase of a layer, on its own."""

    phase: str
    cycles: int = Field(
        description="cycles of the best mapping, with operands read from DRAM and the result written back")
    cycles_first: int = Field(description="cycles of the first mapping that fits")
    bound: int = Field(description="lower bound on the cycles of any mapping")
    simulated: int
    pruned: dict[str, int] = Field(description="number of mappings not simulated, by the bound that ruled them out")
    certified: bool = Field(description="whether the best mapping is proved to be the optimum of the space")
    search_seconds: float
    mapping: dict[str, Any]
    tried: list[dict[str, Any]]


class WholeLayer(BaseModel):
    """The best mappings of all phases in one program, transitions between phases included."""

    cycles: int
    bound: int = Field(
        description="lower bound on the cycles of any mapping of the layer, however much its phases overlap")
    bound_by: str


class LayerSearch(BaseModel):
    """A search for an encoder's mapping, phase by phase."""

    method: str
    phases: list[PhaseSearch]
    layer: WholeLayer
    explained: list[str] = Field(description="the search in sentences")


class RunArch(PrunedPass, Record):
    """`gemmule run arch`: passes of a known architecture, from its shapes alone."""

    architecture: str
    source: str = Field(description="where its config.json is published")
    parameters: int = Field(description="weights of the network, a tied head counted once")
    network_layers: int
    phase: Literal["prefill", "decode", "encode"]
    seq: int = Field(description="cached positions of decode, tokens of prefill")
    rows: int = Field(description="new rows per pass and sequence")
    batch: int = Field(description="sequences per pass")
    bits: Literal["int8", "int4"]
    head_bits: Literal["int8", "int4"]
    group: int = Field(description="rows of depth that share an int4 scale; 0: none")
    context: int = Field(description="most positions that the program supports")
    effort: int
    attention: Literal["exact", "standard", "online"] = Field(
        description="standard: scores and probabilities go through DRAM; online: one block of keys at a time")
    softmax: Literal["exact", "softermax", "ibert"] = Field(description="exponential of the softmax")
    activation: Literal["table", "word", "ibert"] = Field(
        description="activation functions. table: 256 bytes; word: 513 words, interpolated linearly; ibert: I-BERT's "
                    "polynomial")
    fusion: Literal["on", "off"] = Field(
        description="off: the result of every operator goes to DRAM and is read back")
    search: LayerSearch | None = Field(description="with --search")
    passes: int
    commands: int = Field(description="commands executed")
    program_commands: int
    program_bytes: int
    compile_seconds: float
    simulation_seconds: float = Field(description="duration of the simulation of all passes, without warm-up")
    clock_mhz: int
    cycles: int
    host_cycles: int = Field(description="host cycles for launches and steps, not included in cycles")
    milliseconds: float = Field(description="cycles at clock_mhz")
    tokens_per_second: float = Field(description="new rows divided by the time of cycles and host_cycles at clock_mhz")
    macs: int
    network_bytes: int = Field(
        description="bytes of weights, KV, inputs and outputs, each moved once; follows from the network alone")
    utilization: float = Field(description="MACs divided by cycles times MACs per cycle")
    roofline_cycles: float = Field(
        description="cycles to move network_bytes at peak bandwidth, less the time for refresh")
    roofline_fraction: float
    dram_bytes: int
    dram_bytes_by_purpose: dict[str, int]
    scores: Literal["kept", "kept in part", "computed twice", "through DRAM", "seen once"]
    layers: list[LayerOfModel]
    operators: list[OperatorByShape]
    sweep: list[SweepPoint] | None = Field(description="with --sweep: decode and prefill for each value")


class SweepRow(BaseModel):
    """One point; its numbers are null if it has an error."""

    run: str
    config: dict[str, Any] = Field(description="fields that the sweep sets, and `config`, which supplies the others")
    workload: dict[str, Any]
    config_sha256: str | None = Field(description="SHA-256 of all fields; null if they break a rule")
    name: str = Field(description="name of the workload")
    error: str | None
    mesh: int | None = Field(description="number of multipliers")
    memory_bits: int | None = Field(description="bits of scratchpad and accumulator")
    cycles: int | None
    milliseconds: float | None
    utilization: float | None
    roofline_fraction: float | None
    dram_bytes: int | None
    macs: int | None
    seconds: float = Field(description="wall-clock time of the point, compilation included")
    version: str
    finished: str = Field(description="time of completion, UTC")
    pareto: bool = Field(description="whether no other point of its workload is better in both cycles and cost")


class SweepOutput(Record):
    """`gemmule sweep`: a grid of configurations and workloads."""

    file: str
    db: str
    run: str
    engine: Literal["local", "ray", "dask"]
    jobs: int
    cost: Literal["mesh", "memory_bits"]
    points: int
    evaluated: int = Field(description="points evaluated by this command; the others were in the database")
    rows: list[SweepRow]
    differing: list[dict[str, Any]] | None = Field(description="with --compare: points whose cycles or errors differ")


class StudyRow(BaseModel):
    """One figure of a study."""

    setting: str
    published: float | None = Field(description="published value; null if none was published")
    here: float = Field(description="value on this device")
    unit: str = Field(description="unit of both values: cycles, bytes, times, share ..")
    why: str = Field(description="what is compared, and what explains the difference")


class ScheduleStudyRow(StudyRow):
    """One figure of a pruning schedule, and all that its run tells."""

    schedule: str
    length: int = Field(description="cached rows")
    rows_ratio: float = Field(description="rows of keys and values of the dense run over this one's")
    bytes_ratio: float = Field(description="loaded bytes of the dense run, int8, over this one's")
    attention_cycles_ratio: float = Field(description="cycles of the dense run over this one's")
    rows_fetched: int = Field(description="rows of keys and values")
    top_k_cycles: int
    top_k_exposed: int = Field(description="cycles of TOP_K with no command of another unit under way")
    published_bytes_ratio: float = Field(description="against float32, as published")


class StudyOutput(Record):
    """`gemmule study`: a published table or figure, reproduced."""

    study: str
    title: str
    source: str = Field(description="where it is published")
    rows: list[ScheduleStudyRow | StudyRow]


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
    weight_bytes: int | None = Field(
        description="bytes of weights and column parameters; null: no importer reads the network")
    kv_bytes_per_position: int | None = Field(description="bytes of KV cache per position, heads padded to whole rows")
    tokens_per_second_at_most: float | None = Field(description="roofline at an empty context")
    context: int = Field(description="longest context that fits; 0: the network does not fit")
    limit: str = Field(description="what limits the context, or why the network does not fit")


class Info(Record):
    """`gemmule info`: sizes and bandwidths of a device."""

    clock_mhz: int
    macs_per_cycle: int
    macs_per_second: float
    dram_bytes_per_cycle: float = Field(description="peak, less the time for refresh")
    dram_bytes_per_second: float
    ridge_macs_per_byte: float
    memories: list[MemoryOfDevice]
    networks: list[NetworkThatFits] | None = Field(description="null with --no-networks")


class CompileModel(Record):
    """`gemmule compile`: an imported model, compiled to a program."""

    file: str
    rows: int = Field(description="most new rows per pass")
    context: int = Field(description="most positions, cached and new ones together")
    answers: Literal["tokens", "logits"]
    commands: int
    program_bytes: int
    compile_seconds: float = Field(description="duration of the compilation, verification included")
    dram_bytes: int
    regions: dict[str, int] = Field(description="bytes of each DRAM region")
    scores: Literal["kept", "kept in part", "computed twice", "through DRAM", "seen once"]
    mapping: dict[str, Any] | None = Field(description="with --explain or --dump-passes")
    tried: list[dict[str, Any]] | None = Field(
        description="mappings that did not fit, and why; with --explain or --dump-passes")


class TextLikeness(BaseModel):
    """Both networks on one kind of text."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tokens: int = Field(description="predicted tokens")
    perplexity_float: float
    perplexity_int: float
    kl_mean: float
    top1_agreement: float


class Import(Record):
    """`gemmule import`: a quantised checkpoint."""

    source: str
    out: str
    written: bool = Field(description="false if the model is not usable and --force was not given")
    usable: bool
    why_unusable: str | None
    seconds: float
    peak_memory: int | None = Field(description="bytes, mapped files included; null if the system does not report it")
    bytes: int = Field(description="size of the file")
    family: str
    layers: int
    vocab: int
    positions: int
    parameters: int
    bits: Literal["int8", "int4"]
    group: int = Field(description="rows of depth that share an int4 scale; 0: none")
    method: Literal["nearest", "second-order"]
    smooth: bool
    prefix: list[int] = Field(description="tokens whose keys and values come before every sequence")
    rotate: bool
    residual: Literal["one", "layer"]
    inner: Literal[8, 16] = Field(description="bits of the values within the MLP")
    down: Literal["int8", "int4"] | None = Field(description="weights of the MLP's last linear; null: same as bits")
    attention: Literal["exact", "online"]
    softmax: Literal["exact", "softermax", "ibert"]
    activation: Literal["table", "word", "ibert"]
    seed: int
    window: int = Field(description="tokens per window")
    calibration_windows: int
    evaluation_windows: int
    perplexity_float: float | None = Field(description="null for encoders")
    perplexity_int: float | None
    kl_mean: float | None = Field(
        description="mean KL divergence of the integer network's predictions from float's, in nats")
    top1_agreement: float | None = Field(
        description="share of tokens for which both networks have the same most likely token")
    kinds: dict[str, TextLikeness] = Field(description="the same values by kind of text; empty for encoders")
    layer_error: list[float] = Field(
        description="relative RMS error of each layer's output, given float inputs to the layer")
    layer_drift: list[float] = Field(
        description="relative error of each layer's output in the integer network: median over the rows")
    logits_error: float = Field(
        description="relative RMS error of the integer network's output (logits, or an encoder's hidden rows)")
    cosine_mean: float | None = Field(
        description="mean cosine between an encoder's output rows in float and in integers; null for decoders")
    cosine_least: float | None = Field(description="lowest cosine of any row; null for decoders")
    node_error: dict[str, float] = Field(description="relative RMS error of each operation, given float inputs")
