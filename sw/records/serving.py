"""What ``--json`` of ``gemmule serve`` writes: requests that arrive over time, by method and load."""

from __future__ import annotations

from pydantic import BaseModel, Field

from gemmule.sw.records.decoding import MethodName
from gemmule.sw.records.record import Record

__all__ = ["Serve"]


class ServedRequest(BaseModel):
    """A request, the same for all rows."""

    name: str
    prompt_tokens: int
    max_new_tokens: int


class Shares(BaseModel):
    """Percentiles (nearest rank), in seconds of the device's clock."""

    p50: float
    p90: float
    p99: float


class ServedRow(BaseModel):
    """All requests by one method at one load."""

    method: MethodName
    drafts: int = Field(description="tokens drafted per step at most")
    rows_per_text: int = Field(description="rows of a text in a pass; all are computed")
    rate: float | None = Field(description="requests per second as asked; null with a trace")
    kv_bytes: int = Field(description="bytes of DRAM of the target's KV cache")
    equal: int = Field(description="texts that equal those of autoregressive decoding of the prompt alone")
    requests: int
    tokens: int = Field(description="new tokens of all requests")
    offered_per_second: float | None = Field(description="requests that arrived, per second; null: all at once")
    seconds: float = Field(description="from the first arrival to the last token")
    tokens_per_second: float
    cycles: int = Field(description="of device and host")
    idle_cycles: int = Field(description="without any text")
    launches: dict[str, int]
    passes: int = Field(description="questions that were answered together; a prompt may take several launches")
    tokens_per_step: float
    accepted: float = Field(description="accepted drafts over drafted tokens")
    texts_per_pass: float = Field(description="weighted by cycles")
    stopped: int = Field(description="times that a text left the batch because the pool was full")
    most_waiting: int = Field(description="requests that waited for a place at the end of a pass, at most")
    seconds_to_first_token: Shares = Field(description="from a request's arrival")
    seconds_per_token: Shares | None = Field(description="behind the first one; null: no request has two")
    seconds_latency: Shares = Field(description="from a request's arrival to its last token")
    seconds_waiting: Shares = Field(description="from a request's arrival to its place in the batch")
    kv_rows: float = Field(description="cached rows, in the mean over the passes, weighted by cycles")
    waste_reserved: float = Field(
        description="share of cache rows without a token where each text reserves a whole context")
    waste_asked: float = Field(description="the same where it reserves its prompt and most new tokens")
    waste_paged: float = Field(description="the same in pages that are taken as texts grow")


class Serve(Record):
    """`gemmule serve`: requests that arrive over time."""

    model: str
    weights: str | None
    compute: str
    seed: int
    batch: int = Field(description="texts per pass at most")
    prompts: str = Field(description="where rows of prompts go: ahead of the rows that decode, or beside them")
    num_speculative_tokens: int
    adaptive: bool = Field(False, description="steps verify as many candidates as pay")
    max_new_tokens: int
    context: int = Field(description="tokens of a text at most")
    pool: int | None = Field(description="rows of the cache that texts share in pages; null: each reserves a context")
    page: int = Field(description="rows of a page")
    shared_tokens: int = Field(description="tokens with which all prompts begin; cached once, with a pool")
    arrivals: str | None = Field(description="file of the trace; null: random arrivals")
    requests: list[ServedRequest]
    rows: list[ServedRow]
