"""What ``--json`` writes for ``gemmule generate --beams`` and ``--best-of``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from gemmule.sw.records.record import Record

__all__ = ["Search"]


class FoundText(BaseModel):
    """A text that a search found."""

    tokens: list[int] = Field(description="new tokens, a stop token included")
    text: str = Field(description="text of the new tokens, before any stop string")
    log_probability: float = Field(description="natural logarithm, of all tokens")
    score: float = Field(description="what it is ranked by: the log-probability over its length to the power of "
                                     "length_penalty; of sampled texts over the length")
    log_probability_units: int = Field(description="the exact number, in units of 2**-24 bits")
    score_units: int = Field(description="likewise")
    finish_reason: Literal["length", "stop", "context"]
    stop_string: str | None
    number: int = Field(description="of a sampled text: its noise is that of text `number` of a batch; of a beam: its "
                                    "rank")
    votes: int = Field(description="sampled texts that are the same")


class SharedCache(BaseModel):
    """Rows of the KV cache that the texts shared, in all layers."""

    row_bytes: int = Field(description="keys and values of one position")
    rows: int = Field(description="most rows that any text needed at a time")
    bytes: int
    rows_apart: int = Field(description="most positions of all texts together: rows of a cache for each")
    bytes_apart: int
    read_rows: int = Field(description="most cached rows that a pass went over, free ones among them included")
    reserved_bytes: int = Field(description="of a cache of full length for each text")
    forks: int = Field(description="texts that began with all rows of another one")
    copied_rows: int = Field(description="rows that the device copied for forks")
    copy_cycles: int


class PlainRun(BaseModel):
    """One text by autoregressive decoding of the same prompt."""

    tokens: list[int]
    same_tokens: bool = Field(description="as the best text found")
    cycles: int
    prefill_cycles: int
    steps: int
    cycles_per_step: float
    cycles_by_step: list[int]


class Search(Record):
    """`gemmule generate --beams` or `--best-of`: several continuations of one prompt, ranked, and their cost."""

    model: str
    weights: Literal["int8", "int4"] | None
    skip_zeros: bool
    prompt: str
    chat: bool
    system: str | None
    stop: list[str]
    search: Literal["beams", "best-of"]
    width: int = Field(description="texts that share the passes")
    length_penalty: float | None = Field(description="null: not of beams")
    early_stop: bool
    rank: Literal["mean", "majority"] | None = Field(description="null: not of sampled texts")
    backend: Literal["model", "rtl"]
    compute: Literal["device", "interpreter"]
    seed: int
    temperature: float
    top_k: int | None
    top_p: float | None
    verify: Literal["greedy", "match", "rejection"]
    prefill_rows: int | None
    max_new_tokens: int
    prompt_tokens: int
    tokens: list[int] = Field(description="of the best text")
    text: str = Field(description="the best text")
    finish_reason: Literal["length", "stop", "context"]
    candidates: list[FoundText] = Field(description="the best first")
    ties: int = Field(description="of beams: steps in which equal sums decided; of sampled texts: equal ranks. The "
                                  "lower beam, then the lower token, or the lower number comes first")
    moved_texts: int = Field(description="beams that went on with the rows of another place; only lists change")
    clock_mhz: int
    cycles: int = Field(description="device and host")
    device_cycles: int
    host_cycles: int
    prefill_cycles: int
    steps: int
    rows_by_step: list[int]
    cycles_by_step: list[int]
    cycles_per_step: float = Field(description="prompt excluded")
    launches: int
    dram_bytes: int
    simulation_seconds: float
    kv: SharedCache
    ar: PlainRun | None = Field(description="null without a baseline")
