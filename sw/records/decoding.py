"""What commands that write text say with ``--json``: a generation, decoding methods side by side."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.limits import check_choice
from gemmule.sw.records.record import Record

__all__ = ["Bench", "Generate", "Prune"]


def _known(name: str) -> str:
    return check_choice("method", name, tuple(METHODS))


MethodName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(METHODS)})]
"""Of :data:`gemmule.sw.decoding.methods.METHODS`."""


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
    cycles_by_position: list[list[int]] = Field(description="of each step, tokens of the text before it and its cycles")


class Turn(BaseModel):
    """What a turn of a conversation, or a text of a batch, was given and gave."""

    prompt: str
    prompt_tokens: int = Field(description="that it gave the models; of a chat template's where prompts go through one")
    tokens: list[int]
    text: str
    finish_reason: Literal["length", "stop", "context", "interrupted"]
    cached_tokens: int = Field(description="whose rows were in the cache before it")
    prefill_cycles: int
    cycles: int


class ResidentModel(BaseModel):
    """What a model keeps in DRAM."""

    bytes: int = Field(description="weights, tables, programs, lists and answers: all but its KV caches")
    kv_bytes: int
    prefill_rows: int = Field(description="rows of a launch of a prompt, by a program of their own; 0: there is none")


class CachesOfBatch(BaseModel):
    """KV caches of target and draft for a number of texts."""

    batch: int
    kv_bytes: dict[str, int] = Field(description="by positions of each text")
    dram_context: int = Field(description="positions of each text that DRAM has room for")
    largest_context: int = Field(description="no more than the networks have")


class Resident(BaseModel):
    """What stays in DRAM, and what fits it."""

    dram_bytes: int = Field(description="that the configuration addresses")
    batch: int = Field(description="texts of a pass")
    context: int = Field(description="positions of each text")
    bytes: int = Field(description="of all, alignment included")
    models: dict[str, ResidentModel] = Field(description="target and draft; step: the program of both in one launch")
    kv_bytes: int = Field(description="of all caches")
    by_batch: list[CachesOfBatch]
    largest_context: int
    context_limit: str = Field(description="what limits it")
    largest_batch: int = Field(description="with that context")
    batch_limit: str


class Pruning(BaseModel):
    """The schedule of a pruned cache."""

    keep: float | int = Field(description="of the cached rows: a share, or a number")
    every: int = Field(description="positions from one selection to the next")
    first: int = Field(description="rows that are always kept: the first ones")
    last: int = Field(description="the newest ones")
    whole: int = Field(description="rows up to which a text keeps all")
    score: Literal["attention", "none"]


class Generate(Record):
    """`gemmule generate`: one text, and what it cost."""

    model: str = Field(description="the bundled pair of target and draft that ran, or the imported target's file name")
    weights: Literal["int8", "int4"] | None = Field(description="of target and draft; null: as the models have them")
    prompt: str = Field(description="of the first turn or text")
    chat: bool = Field(default=False, description="whether prompts went through the model's chat template")
    system: str | None = Field(default=None, description="what the system says in it")
    method: MethodName
    method_options: dict[str, int | str | None] = Field(
        default_factory=dict, description="of the method's own, but for how many tokens it drafts; null: as it finds")
    backend: Literal["model", "rtl"]
    compute: Literal["device", "interpreter"] = Field(
        default="device", description="where values come from; the interpreter's are those of the device")
    seed: int
    num_speculative_tokens: int = Field(description="tokens drafted a step at most; 0 with method ar")
    temperature: float = Field(description="0: greedy")
    top_k: int | None
    top_p: float | None
    verify: Literal["greedy", "match", "rejection"]
    draft_lengths: Literal["constant", "heuristic", "confidence", "cost"]
    launch: Literal["pass", "draft", "step"] = Field(
        description="what a launch holds: a pass, the drafts of a step, or these and the pass that verifies them")
    prefill_rows: int | None = Field(description="asked for; null: as many as pay")
    prompt_tokens: int
    tokens: list[int] = Field(description="new tokens, a stop token included")
    text: str = Field(description="text of the new tokens, up to a stop string")
    finish_reason: Literal["length", "stop", "context", "interrupted"] = Field(
        description="why the text ended: --max-new-tokens, a token that ends it or a stop string, a full context, or "
                    "an interrupt")
    stop: list[str] = Field(description="stop strings")
    stop_string: str | None = Field(description="the one that the text came to")
    context_overflow: Literal["stop", "crop", "sinks"]
    dropped_tokens: int = Field(description="tokens that the models saw no more at the end")
    kv_cache: Literal["full", "none"]
    prune: Pruning | None = Field(default=None, description="the schedule of the target's cache; null: it keeps all")
    kept_rows_by_layer: list[int] | None = Field(default=None, description="of each KV head, at the last selection")
    kv_bytes: int | None = Field(default=None, description="of cached keys and values, read by all passes once each, "
                                                           "selecting ones included")
    kv_bytes_dense: int | None = Field(default=None, description="the same of the whole cache, without selections")
    selections: int | None = None
    selection_cycles: int | None = Field(default=None, description="selecting passes, gathers and copies, with the "
                                                                   "host's launches")
    topk_cycles: int | None = Field(default=None, description="of the select unit's TOP_K")
    topk_exposed_cycles: int | None = Field(default=None, description="of these, with no other unit at work")
    dropped_probability: float | None = Field(default=None, description="share of the probability that dropped "
                                                                        "rows had; null: the device does not tell")
    batch: int = Field(description="texts that shared the passes")
    texts: list[Turn] | None = Field(description="of a batch; sums of all stand beside it, cycles of a text are from "
                                                 "its begin to its end")
    turns: list[Turn] | None = Field(description="of a conversation; sums of all turns stand beside it")
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
    target_passes_saved: float | None = Field(description="share of those a token; None without a baseline")
    extra_parameters: int = Field(description="weights of the draft model that the method needs")
    launches: dict[str, int] = Field(description="by model; one that drafts and verifies is the target's")
    steps: int
    cycles_by_position: list[list[int]] = Field(description="of each step, tokens of the text before it and its cycles")
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
    resident: Resident


class BenchRow(BaseModel):
    """One way to decode, on the prompts of a category (`all`: of all)."""

    method: MethodName | Literal["always", "never"]
    category: str
    temperature: float
    num_speculative_tokens: int
    verify: Literal["greedy", "match", "rejection"]
    prompts: int
    equal_to_ar: int | None = Field(description="texts equal token by token; null where only the law is the same")
    speedup_over_ar: float = Field(description="mean over prompts, prompt and host counted on both sides; with a "
                                               "batch, over the groups that share passes, as ar's do")
    batch_gain: float | None = Field(description="tokens a cycle of the batch over those of its prompts one at a time "
                                                 "by the same method, mean over groups; null without a batch")
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
    looping: int = Field(description="texts of which less than half of the 4-grams are distinct")
    speedup_without_loops: float | None = Field(
        description="speedup_over_ar of the prompts, or groups that share passes, without such texts; null: of none")
    draft_cycle_share: float = Field(description="mean over prompts, host work for its launches included")
    steps_accepting: dict[str, int] = Field(description="steps by accepted drafts: none, some, all, undrafted")
    roofline_fraction: float = Field(description="least cycles of the target's passes by DRAM bandwidth, over theirs")
    theoretical_speedup: float | None = Field(description="mean over prompts, without their prefill")
    decode_speedup: float | None = Field(description="measured, like it")
    alpha: float | None = Field(description="accepted over reached drafts")
    draft_cost: float | None = Field(description="c: cycles of a drafted token over those of an autoregressive step")
    expected_tokens: float | None = Field(description="of a step, (1 - alpha^(g+1)) / (1 - alpha)")
    worst_case: float | None = Field(description="c g + 1: a step without accepted drafts over an autoregressive one")
    tokens_of_theory: float | None = Field(description="tokens of a step over the expected ones")
    cycles_of_theory: float | None = Field(description="expected cycles of a step over those that it took")
    verify_cost: float | None = Field(description="a pass of the target over one of autoregressive decoding")


class BestLength(BaseModel):
    """Draft lengths of a method that several were tried of."""

    category: str
    method: str
    temperature: float
    verify: str
    measured: int = Field(description="the fastest one that was tried")
    speedup_over_ar: float = Field(description="its mean, prompt and host counted")
    foretold: int = Field(description="the best one by acceptance by position and costs of passes")
    foretold_speedup: float = Field(description="its speed-up behind the prompt")


class BenchPrompt(BaseModel):
    """A prompt that was decoded."""

    category: str
    name: str
    tokens: int


class Bench(Record):
    """`gemmule bench`: decoding methods side by side."""

    model: str
    weights: Literal["int8", "int4"] | None = Field(description="of target and draft; null: as the models have them")
    backend: Literal["model", "rtl"]
    compute: Literal["device", "interpreter"] = Field(description="what values are of; cycles are the device's")
    seed: int
    max_new_tokens: int
    launch: Literal["pass", "draft", "step"]
    prefill_rows: int | None = Field(description="asked for; null: as many as pay")
    batch: int = Field(description="prompts of a category that shared the passes")
    top_k: int | None
    top_p: float | None
    prune: Pruning | None = Field(default=None, description="the schedule of the target's cache; null: it keeps all")
    method_options: dict[str, dict[str, int | str | None]] = Field(
        default_factory=dict, description="by method, those of its own; null: as it finds")
    rows: list[BenchRow]
    best: list[BestLength] = Field(description="of each method with several draft lengths, by category")
    resident: Resident
    prompts: list[BenchPrompt]


class DenseNumbers(BaseModel):
    """A text and a token with the whole cache."""

    nats: float = Field(description="of a token, in the mean")
    rows_seen: float = Field(description="cached rows that a row sees, over all of them")
    dropped_probability: float = Field(description="share of the probability that dropped rows had, at selections")
    rows: int = Field(description="that a token's pass reads")
    pass_cycles: int
    selection_cycles: int = Field(description="host work included; a token pays a share")
    cycles_per_token: int


class ScheduleNumbers(Pruning, DenseNumbers):
    """The same with a schedule."""

    perplexity_change: float = Field(description="beside the whole cache; 0.01 is one percent more")
    speedup: float = Field(description="cycles of a token with the whole cache over this one's")
    pareto: bool = Field(description="no other schedule has fewer cycles and less perplexity")


class Prune(Record):
    """`gemmule prune`: schedules of a pruned cache."""

    model: str
    weights: Literal["int8", "int4"] | None
    window: int = Field(description="tokens of a window, and cached rows behind which cycles are told")
    windows: int
    budget: float = Field(description="rise of perplexity that is allowed")
    dense: DenseNumbers
    rows: list[ScheduleNumbers] = Field(description="the fewest cycles first")
    chosen: Pruning = Field(description="the fewest cycles within the budget")
