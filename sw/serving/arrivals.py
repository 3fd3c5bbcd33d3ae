"""When requests arrive, and what they ask: from a YAML trace, or at random times of a rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gemmule.config import Config
from gemmule.io.fields import first_problem
from gemmule.io.reading import ReadError, named, shown
from gemmule.io.yaml_file import read_yaml
from gemmule.sw.errors import InputError
from gemmule.sw.models.pair import Pair

__all__ = ["Arrival", "Trace", "TraceRequest", "poisson", "read_trace", "traced"]

MOST_US = 10**9
"""Microseconds of a trace at most."""


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A request.

    Attributes:
        at: cycle of the device's clock at which it is there.
        ids: tokens of its prompt.
        new_tokens: that it may get at most.
    """

    name: str
    at: int
    ids: tuple[int, ...]
    new_tokens: int


class TraceRequest(BaseModel):
    """A request of a trace: a text of its own (``prompt``), or a bundled one by its name (``request``)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    at_us: Annotated[int, Field(ge=0, le=MOST_US)]
    """Microseconds of the device's clock."""
    prompt: Annotated[str, Field(min_length=1)] | None = None
    request: str | None = None
    max_new_tokens: Annotated[int, Field(ge=1, le=1 << 16)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.prompt is None) is (self.request is None):
            raise ValueError("a request must have a prompt or the name of a bundled request, one of both")
        return self


class Trace(BaseModel):
    """The file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    shared: Annotated[str, Field(min_length=1)] | None = None
    """Text with which all prompts begin; bundled requests do not."""
    requests: Annotated[list[TraceRequest], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.shared and any(request.request for request in self.requests):
            raise ValueError("shared is the beginning of prompts that the trace writes: give each request a prompt")
        return self


def read_trace(path: Path) -> Trace:
    """Read and check a trace.

    Raises:
        InputError: one line that names file, line, value and rule.
    """
    try:
        file = read_yaml(path, lists=True)
    except ReadError as error:
        raise InputError(f"--arrivals {named(path, error.line)}: {error}") from None
    try:
        trace = Trace.model_validate(file.values)
    except ValidationError as error:
        where, text = first_problem(error, Trace)
        where = where or ".".join(str(part) for part in error.errors()[0]["loc"])
        raise InputError(f"--arrivals {named(path, file.lines.get(where))}: {text}") from None
    times = [request.at_us for request in trace.requests]
    for number, (before, after) in enumerate(zip(times, times[1:]), 1):
        if after < before:
            at = named(path, file.lines.get(f"requests.{number}.at_us"))
            raise InputError(f"--arrivals {at}: at_us must not fall, from {before:,} to {after:,}: put requests in the "
                             "order in which they arrive")
    return trace


def traced(trace: Trace, config: Config, pair: Pair, known: Callable[[str], list[int] | None],
           new_tokens: int) -> tuple[list[Arrival], list[int]]:
    """The requests of a trace with their tokens, and the tokens with which all begin.

    ``known``: tokens of a bundled request by its name, None if there is no such; ``new_tokens``: of requests that do
    not say how many.

    Raises:
        InputError: there is no bundled request of a name.
    """
    found, shared = [], pair.encode(trace.shared) if trace.shared else []
    encode = pair.go_on if shared else pair.encode
    for number, request in enumerate(trace.requests, 1):
        ids = [*shared, *encode(request.prompt)] if request.prompt is not None else known(str(request.request))
        if ids is None:
            raise InputError(f"--arrivals: request {number} must name a bundled request, such as chat/capital, not "
                             f"{shown(str(request.request))}")
        found.append(Arrival(name=request.request or f"request {number}", at=request.at_us * config.host.clock_mhz,
                             ids=tuple(ids), new_tokens=request.max_new_tokens or new_tokens))
    return found, shared


def poisson(rate: float, prompts: Sequence[tuple[str, Sequence[int]]], new_tokens: int, config: Config,
            seed: int) -> list[Arrival]:
    """Requests at exponentially distributed distances, ``rate`` a second in the mean; the first one at cycle 0.

    Distances are the same random numbers at every rate, divided by it, so that rates compare.
    """
    gaps = np.random.default_rng(seed).exponential(size=len(prompts))
    gaps[0] = 0
    times = np.cumsum(gaps) / rate * config.host.clock_mhz * 1e6
    return [Arrival(name=name, at=int(at), ids=tuple(ids), new_tokens=new_tokens)
            for (name, ids), at in zip(prompts, times)]
