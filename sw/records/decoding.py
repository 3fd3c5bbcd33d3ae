"""What ``--json`` writes for commands that generate text: one generation, or a comparison of decoding methods."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.limits import check_choice
from gemmule.sw.records.energy import Energy
from gemmule.sw.records.record import Record

__all__ = ["Bench", "Generate", "Prune", "TreeShape"]


def _known(name: str) -> str:
    return check_choice("method", name, tuple(METHODS))


MethodName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(METHODS)})]
"""A name in :data:`gemmule.sw.decoding.methods.METHODS`."""


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
    cycles_by_position: list[list[int]] = Field(
        description="for each step: tokens of the text before it, and its cycles")
    energy: Energy | None = Field(default=None, description="null: not known")


class Turn(BaseModel):
    """Input and output of one turn of a conversation, or of one text of a batch."""

    prompt: str
    prompt_tokens: int = Field(description="tokens of the prompt, those of the chat template included")
    tokens: list[int]
    text: str
    finish_reason: Literal["length", "stop", "context", "interrupted"]
    cached_tokens: int = Field(description="tokens whose rows were in the cache already")
    prefill_cycles: int
    cycles: int


class ResidentModel(BaseModel):
    """What a model keeps in DRAM."""

    bytes: int = Field(description="weights, tables, programs, lists and answers: everything except KV caches")
    kv_bytes: int
    prefill_rows: int = Field(description="rows per launch of the separate program for prompts; 0: no such program")


class CachesOfBatch(BaseModel):
    """KV caches of target and draft for one number of texts."""

    batch: int
    kv_bytes: dict[str, int] = Field(description="bytes, by number of positions per text")
    dram_context: int = Field(description="positions per text that fit in DRAM")
    largest_context: int = Field(description="dram_context, limited to the positions of the networks")


class Resident(BaseModel):
    """What stays in DRAM, and which contexts and batches fit."""

    dram_bytes: int = Field(description="bytes of DRAM that the configuration can address")
    batch: int = Field(description="texts per pass")
    context: int = Field(description="positions per text")
    bytes: int = Field(description="everything resident, alignment included")
    models: dict[str, ResidentModel] = Field(
        description="target and draft; step: the program that runs both in one launch")
    kv_bytes: int = Field(description="all KV caches")
    by_batch: list[CachesOfBatch]
    largest_context: int
    context_limit: str = Field(description="what limits largest_context")
    largest_batch: int = Field(description="most texts per pass with `context` positions each")
    batch_limit: str = Field(description="what limits largest_batch")


class Pruning(BaseModel):
    """The schedule of a pruned cache."""

    keep: float | int = Field(description="of the cached rows: a share, or a number")
    every: int = Field(description="positions from one selection to the next; not of score pages")
    first: int = Field(description="rows that are always kept: the first ones")
    last: int = Field(description="the newest ones")
    whole: int = Field(description="rows up to which a text keeps all")
    score: Literal["attention", "heavy", "none", "pages", "chunks"]
    page: int = Field(description="rows of a page, where each row chooses pages")
    values: int | None = Field(default=None, description="least 8-bit probability that meets a value; null: all "
                                                         "values are loaded")
    four: float | None = Field(default=None, description="of the rows that are kept, the share with 4 bits; null: none")
    halves: Literal["values", "both"] | None = Field(
        default=None, description="what has 4 bits then, by default values; both: keys too")
    progressive: float | None = Field(default=None, description="largest probability below which a row reads all bits "
                                                                "of keys, else 4; null: all rows do")


class Generate(Record):
    """`gemmule generate`: one text, and its cost."""

    model: str = Field(description="the bundled pair of target and draft that ran, or the imported target's file name")
    weights: Literal["int8", "int4"] | None = Field(
        description="weights of target and draft; null: as stored in the models")
    skip_zeros: bool = Field(description="weights of the target that meet only zeros were not loaded")
    prompt: str = Field(description="prompt of the first turn or text")
    chat: bool = Field(default=False, description="whether prompts went through the model's chat template")
    system: str | None = Field(default=None, description="the system message of the chat template")
    method: MethodName
    method_options: dict[str, int | float | str | None] = Field(
        default_factory=dict, description="the method's own options, except the number of drafts; null: the method "
                                          "decides")
    backend: Literal["model", "rtl"]
    compute: Literal["device", "interpreter"] = Field(
        default="device", description="what computes the values; both give the same values")
    seed: int
    num_speculative_tokens: int = Field(description="most tokens drafted per step; 0 with method ar")
    temperature: float = Field(description="0: greedy")
    top_k: int | None
    top_p: float | None
    verify: Literal["greedy", "match", "rejection"]
    draft_lengths: Literal["constant", "heuristic", "confidence", "cost"]
    adaptive: bool = Field(default=False, description="each step drafted and verified as many candidates as pay")
    launch: Literal["pass", "draft", "step"] = Field(
        description="content of one launch: a pass, all drafts of a step, or the whole step: drafts and verification")
    prefill_rows: int | None = Field(description="rows per launch of a prompt, as requested; null: chosen by cost")
    prompt_tokens: int
    tokens: list[int] = Field(description="new tokens, a stop token included")
    text: str = Field(description="text of the new tokens, before any stop string")
    finish_reason: Literal["length", "stop", "context", "interrupted"] = Field(
        description="why the text ended. length: --max-new-tokens; stop: an end-of-text token or a stop string; "
                    "context: the context is full; interrupted: by the user")
    stop: list[str] = Field(description="stop strings")
    stop_string: str | None = Field(description="the stop string that ended the text")
    context_overflow: Literal["stop", "crop", "sinks"]
    dropped_tokens: int = Field(description="tokens that had left the context by the end")
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
    texts: list[Turn] | None = Field(
        description="the texts of a batch, each with the cycles from its start to its end; the fields beside this "
                    "list are sums over all texts")
    turns: list[Turn] | None = Field(
        description="the turns of a conversation; the fields beside this list are sums over all")
    clock_mhz: int
    cycles: int = Field(description="device and host")
    milliseconds: float = Field(description="cycles at clock_mhz")
    tokens_per_second: float = Field(description="new tokens per second at clock_mhz, prefill included")
    simulation_seconds: float = Field(description="wall-clock time of the simulation")
    device_cycles: int
    host_cycles: int
    prefill_cycles: int
    cycles_per_token: float
    cycles_by_model: dict[str, int]
    cycles_by_unit: dict[str, int] = Field(
        description="for each unit, cycles in which a command is between issue and finish; units overlap")
    tokens_per_step: float
    drafted_tokens: int
    acceptance: float = Field(description="accepted tokens divided by drafted tokens")
    acceptance_by_position: list[float] = Field(
        description="accepted share at each position, among drafts whose predecessors were accepted")
    accept_histogram: dict[str, int] = Field(description="number of steps, by number of accepted tokens")
    target_passes: int
    draft_passes: int
    target_passes_saved: float | None = Field(
        description="share of target passes per token saved over ar; null without a baseline")
    extra_parameters: int = Field(description="weights that the method needs beside the target's, embeddings included")
    launches: dict[str, int] = Field(
        description="launches by model; one that drafts and verifies counts for the target")
    steps: int
    cycles_by_position: list[list[int]] = Field(
        description="for each step: tokens of the text before it, and its cycles")
    dram_bytes: int
    dram_bytes_by_purpose: dict[str, int]
    dram_bound: float = Field(description="share of device cycles in which the DRAM bus moves data")
    bound: Literal["memory", "compute"] = Field(
        description="memory if the DRAM bus is busier than the matrix unit, else compute")
    distinct_4grams: float
    speedup_over_ar: float | None = Field(description="null without a baseline")
    same_tokens_as_ar: bool | None = Field(
        description="null without a baseline, with a lossy method, and if only the distribution of tokens must be the "
                    "same")
    policy_equal: bool | None = Field(
        default=None, description="whether the text of a lossy method is that of its policy, computed anew without a "
                                  "cache; null: the method is lossless")
    layers_run: dict[str, int] | None = Field(
        default=None, description="tokens of a lossy method by the layers that they ran; null: all ran all of them")
    ar: Baseline | None = Field(description="null without a baseline, and with method ar")
    draft_cost: float | None = Field(description="cycles per drafted token divided by cycles per autoregressive step")
    theoretical_speedup: float | None = Field(
        description="speed-up predicted from acceptance and draft_cost, prompt excluded")
    decode_speedup: float | None = Field(description="measured speed-up, prompt excluded")
    energy: Energy | None = Field(
        default=None, description="null: not known, as of commands with predicates on the RTL")
    resident: Resident


class BenchRow(BaseModel):
    """One way to decode, on the prompts of one category (`all`: of every category)."""

    method: MethodName | Literal["always", "never"]
    category: str
    temperature: float
    num_speculative_tokens: int
    verify: Literal["greedy", "match", "rejection"]
    warm: bool = Field(default=False, description="the method kept what it learned from one prompt to the next")
    prompts: int
    equal_to_ar: int | None = Field(
        description="texts with exactly the tokens of ar; null if only the distribution must be the same")
    lossless: bool = Field(default=True, description="the method's text is that of ar, or has its distribution; a "
                                                     "lossy one leaves out layers")
    policy_equal: int | None = Field(
        default=None, description="texts of a lossy method with exactly the tokens of its policy, computed anew "
                                  "without a cache; null: the method is lossless")
    layers_run: dict[str, int] | None = Field(
        default=None, description="tokens of a lossy method by the layers that they ran; null: all ran all of them")
    speedup_over_ar: float = Field(description="mean over prompts, prefill and host included on both sides; with "
                                               "a batch, mean over the groups that share passes, for ar too")
    batch_gain: float | None = Field(description="throughput of the batch relative to its prompts one at a time by the "
                                                 "same method, mean over groups; null without a batch")
    speedup_median: float
    speedup_min: float
    speedup_max: float
    slower_than_ar: float = Field(description="share of prompts that are slower than with ar")
    speedup_by_launch_cycles: dict[str, float] = Field(description="by host cycles per launch")
    tokens: int
    cycles_per_token: float
    tokens_per_step: float
    acceptance: float = Field(description="accepted tokens divided by drafted tokens")
    acceptance_by_position: list[float] = Field(
        description="accepted share at each position, among drafts whose predecessors were accepted")
    calls_reduced: float = Field(
        default=0.0, description="share of the steps of ar that its own steps save, prompt excluded")
    target_calls: int
    draft_calls: int
    extra_parameters: int = Field(description="weights that the method needs beside the target's, embeddings included")
    distinct_4grams: float = Field(description="mean over prompts")
    looping: int = Field(description="texts in which fewer than half of the 4-grams are distinct")
    speedup_without_loops: float | None = Field(
        description="speedup_over_ar without looping texts (in a batch, without groups that have one); null: none left")
    draft_cycle_share: float = Field(description="share of cycles for drafting, host included; mean over prompts")
    steps_accepting: dict[str, int] = Field(
        description="number of steps in which none, some or all drafts were accepted, or none was drafted")
    roofline_fraction: float = Field(
        description="fewest cycles that DRAM bandwidth allows the target's passes, divided by theirs")
    theoretical_speedup: float | None = Field(description="predicted speed-up, mean over prompts, prefill excluded")
    decode_speedup: float | None = Field(description="measured speed-up, mean over prompts, prefill excluded")
    alpha: float | None = Field(description="accepted drafts divided by drafts whose predecessors were accepted")
    draft_cost: float | None = Field(
        description="c: cycles per drafted token divided by cycles per autoregressive step")
    expected_tokens: float | None = Field(
        description="expected tokens per step of g drafts: (1 - alpha^(g+1)) / (1 - alpha)")
    worst_case: float | None = Field(
        description="c g + 1: cost of a step of g drafts, none accepted, in autoregressive steps")
    tokens_of_theory: float | None = Field(description="measured tokens per step divided by expected_tokens")
    cycles_of_theory: float | None = Field(description="expected cycles per step divided by measured ones")
    verify_cost: float | None = Field(
        description="cycles of a target pass divided by those of a pass in autoregressive decoding")
    break_even: float | None = Field(
        default=None, description="acceptance (alpha) below which so many drafts at this cost lose, prompt excluded; "
                                  "null: nothing was drafted")
    energy: Energy | None = Field(default=None, description="of all prompts; null: not known")
    energy_ar: Energy | None = Field(
        default=None, description="of autoregressive decoding of the same prompts; null: not known")


class BestLength(BaseModel):
    """The best draft length of a method of which several lengths were tried."""

    category: str
    method: str
    temperature: float
    verify: str
    measured: int = Field(description="the fastest length that was tried")
    speedup_over_ar: float = Field(description="mean speed-up with that length, prefill and host included")
    foretold: int = Field(description="the best length according to acceptance by position and the costs of passes")
    foretold_speedup: float = Field(description="predicted speed-up with that length, prompt excluded")


class PassCosts(BaseModel):
    """What passes of the target cost by rows, host included."""

    batch: int = Field(1, description="texts of a pass, each with so many rows")
    cached: int = Field(description="tokens behind which the passes are")
    cycles: list[float] = Field(description="of a pass over 1, 2, 3, .. rows, as many as it takes at most")
    rows: int = Field(description="most rows that cost at most 1.03 times one row")
class Overview(BaseModel):
    """A method on all prompts, with its worst category."""

    method: str
    num_speculative_tokens: int
    temperature: float
    verify: str
    warm: bool
    prompts: int
    equal_to_ar: int | None = Field(default=None, description="as of a row")
    lossless: bool | None = Field(description="as of a row")
    policy_equal: int | None = Field(default=None, description="as of a row")
    speedup_over_ar: float
    speedup_median: float
    speedup_without_loops: float | None
    speedup_min: float
    slower_than_ar: float
    worst_category: str
    worst_speedup: float = Field(description="mean of that category")
    tokens_per_step: float
    calls_reduced: float
    extra_parameters: int
    draft_cycle_share: float


class BenchPrompt(BaseModel):
    """A prompt that was decoded."""

    category: str
    name: str
    tokens: int


class Bench(Record):
    """`gemmule bench`: decoding methods side by side."""

    model: str
    weights: Literal["int8", "int4"] | None = Field(
        description="weights of target and draft; null: as stored in the models")
    skip_zeros: bool = Field(description="weights of the target that meet only zeros were not loaded")
    backend: Literal["model", "rtl"]
    compute: Literal["device", "interpreter"] = Field(
        description="what computes the values; cycles are always the device's")
    seed: int
    max_new_tokens: int
    launch: Literal["pass", "draft", "step"]
    adaptive: bool = Field(default=False, description="each step drafted and verified as many candidates as pay")
    prefill_rows: int | None = Field(description="rows per launch of a prompt, as requested; null: chosen by cost")
    batch: int = Field(description="prompts of a category that shared the passes")
    top_k: int | None
    top_p: float | None
    prune: Pruning | None = Field(default=None, description="the schedule of the target's cache; null: it keeps all")
    method_options: dict[str, dict[str, int | float | str | None]] = Field(
        default_factory=dict, description="the own options of each method; null: the method decides")
    rows: list[BenchRow]
    best: list[BestLength] = Field(description="for each method with several draft lengths, by category")
    pass_costs: list[PassCosts] = Field(
        default_factory=list, description="of the target, behind contexts from the shortest prompt to the longest text")
    overview: list[Overview] = Field(default_factory=list, description="a row a method, the fastest first")
    resident: Resident
    prompts: list[BenchPrompt]


class TreeShape(Record):
    """`gemmule tree`: ranks of candidates, costs of rows, and the tree with the most tokens a cycle."""

    model: str
    method: Literal["draft-tree", "recycling"]
    prompts: int
    counted: int = Field(description="texts that count: those that do not loop, or all, where all do")
    max_new_tokens: int
    cached: int = Field(description="tokens behind which costs are told")
    tried: list[int] = Field(description="candidates behind accepted ones, by rank, the likeliest first")
    right: list[int] = Field(description="of them, those that were accepted")
    ranks: list[float] = Field(description="share that was accepted; no rank more than the one before")
    row_cycles: list[float] = Field(description="of a step that verifies 1, 2, 3, .. rows, host included")
    level_cycles: float = Field(description="of a draft model's pass for a level; 0: there is none")
    plain_cycles: float = Field(description="of a step of autoregressive decoding")
    tokens: float = Field(description="expected of a step with the tree")
    cycles: float = Field(description="of such a step")
    gain: float = Field(description="tokens a cycle over those of autoregressive decoding")
    places: list[list[int]] = Field(description="candidates by the ranks on their paths, from 0, the likeliest first")


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
