"""A run as a trace for Perfetto (ui.perfetto.dev) and Chrome: every command of every unit, launches, the host.

The format is JSON trace events. Time is the device's: a cycle is 1 / clock_mhz microseconds. Commands of a unit run in
order but may overlap, which a track cannot show. Each command is therefore drawn from its issue or from the end of the
previous one, whichever is later. The slices of a track then add up to the busy cycles in the report; ``args`` holds the
real issue and finish.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import Unit
from gemmule.sim.result import Result
from gemmule.sw.device.timeline import LaunchRecord, RunRecord, Timeline

__all__ = ["phase", "slices", "trace_bytes"]

DEVICE, DECODING = 1, 2
LAUNCHES, HOST, RUNS = 1, 2, 3


MODELS = {"target": "verify", "draft": "draft"}
"""The purpose of a pass with answers, by model."""


def phase(record: LaunchRecord) -> str:
    """The purpose of a launch: ``verify``, ``draft``, ``prefill`` or ``commit``; for other programs, their name.

    A launch without answers skips the head, and one that only moves rows of a cache does not use the mesh.
    """
    if record.model not in MODELS:
        return record.model
    if not any(command.unit is Unit.MATRIX for command in record.commands):
        return "commit"
    last = int(record.result.places.max()) + 1
    return "prefill" if last < len(record.commands) or not record.answers else MODELS[record.model]


def slices(result: Result, unit: Unit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A unit's commands with the start and end of the slice that shows each; slices do not overlap  # int64 [commands].

    A command that ends before an earlier one gets an empty slice.
    """
    mine = np.flatnonzero(result.units == unit)
    ends = np.maximum.accumulate(result.finish[mine])
    starts = np.maximum(result.issue[mine] - 1, np.concatenate(([0], ends))[:-1])
    return mine, starts, np.maximum(ends, starts)


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _heads() -> Iterator[dict[str, Any]]:
    yield _name("process_name", DEVICE, 0, "device")
    yield _name("process_name", DECODING, 0, "decoding")
    for unit in Unit:
        yield _name("thread_name", DEVICE, unit + 1, unit.label)
    yield _name("thread_name", DECODING, LAUNCHES, "launches")
    yield _name("thread_name", DECODING, HOST, "host")


def _parts(record: LaunchRecord) -> list[tuple[str, str, int]]:
    """(name, model, cycles) of the parts of a launch, in order."""
    parts = [(record.model, phase(record), int(record.result.cycles))]
    if (earlier := record.earlier) is not None:
        parts = [(earlier.model, MODELS[earlier.model], earlier.cycles),
                 (record.model, MODELS[record.model], int(record.result.cycles) - earlier.cycles)]
    return [(model if purpose == model else f"{purpose} ({model})", model, cycles) for model, purpose, cycles in parts]


def _launch(record: LaunchRecord, config: Config, clock: int) -> Iterator[dict[str, Any]]:
    result, begin, parts = record.result, record.start + config.host.launch_cycles, _parts(record)

    def piece(process: int, thread: int, name: str, start: int, cycles: int, **more: Any) -> dict[str, Any]:
        return {"ph": "X", "pid": process, "tid": thread, "name": name, "ts": start / clock, "dur": cycles / clock,
                "args": {"start_cycle": start, "cycles": cycles, **more}}

    names = " and ".join(name for name, _, _ in parts)
    yield piece(DECODING, HOST, f"launch {names}", record.start, config.host.launch_cycles)
    moved = sum(result.dram_bytes.values())
    busy = moved // config.bus_bytes * config.dram.beat_cycles / max(1, result.cycles)
    at = begin
    for name, model, cycles in parts:
        yield piece(DECODING, LAUNCHES, name, at, cycles, model=model, launch_dram_bytes=dict(result.dram_bytes),
                    launch_dram_bus_busy=round(busy, 4))
        at += cycles
    for at, share in ((begin, busy), (begin + int(result.cycles), 0.0)):
        yield {"ph": "C", "pid": DEVICE, "name": "DRAM bus busy, mean of a launch", "ts": at / clock,
               "args": {"percent": round(100 * share, 2)}}
    for unit in Unit:
        for command, start, end in zip(*slices(result, unit), strict=True):
            place = int(result.places[command]) if len(result.places) else int(command)
            note = record.commands[place].note if place < len(record.commands) else ""
            if end > start:
                yield piece(DEVICE, unit + 1, note or unit.label, begin + int(start), int(end - start),
                            issue=int(result.issue[command]), finish=int(result.finish[command]), place=place)


def events(timeline: Timeline, config: Config) -> Iterator[dict[str, Any]]:
    """All events; their order does not matter."""
    clock = config.host.clock_mhz
    yield from _heads()
    if any(isinstance(record, RunRecord) for record in timeline):
        yield _name("thread_name", DECODING, RUNS, "runs")
    for record in timeline:
        if isinstance(record, LaunchRecord):
            yield from _launch(record, config, clock)
            continue
        thread, name, cycles = ((RUNS, record.name, record.cycles) if isinstance(record, RunRecord) else
                                (HOST, "step", config.host.step_cycles))
        yield {"ph": "X", "pid": DECODING, "tid": thread, "name": name, "ts": record.start / clock,
               "dur": cycles / clock, "args": {"start_cycle": record.start}}


def trace_bytes(timeline: Timeline, config: Config, *, compressed: bool) -> bytes:
    """The content of the file; ``compressed``: with gzip, which Perfetto opens too."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events(timeline, config))
    content = f'{{"displayTimeUnit":"ns","traceEvents":[\n{lines}\n]}}\n'.encode()
    return gzip.compress(content, compresslevel=6, mtime=0) if compressed else content
