"""A trace holds every command at its cycles, in the form that Perfetto reads."""

import gzip
import json
from collections import defaultdict

import pytest

from gemmule.config import load_config
from gemmule.isa import Unit
from gemmule.sw.decoding.generate import Generation
from gemmule.sw.reports.trace import DECODING, DEVICE, HOST, LAUNCHES, LaunchRecord, StepRecord, Timeline, trace_bytes
from gemmule.sw.session import Session
from gemmule.sw.text import encode


@pytest.fixture(scope="module")
def traced() -> tuple[Generation, Timeline]:
    timeline: Timeline = []
    with Session(load_config("base")) as session:
        return session.generate("draft", encode("import os\n"), 8, 2, timeline=timeline), timeline


def test_a_trace_is_the_run(traced: tuple[Generation, Timeline]) -> None:
    run, timeline = traced
    config = load_config("base")
    content = trace_bytes(timeline, config, compressed=False)
    assert gzip.decompress(trace_bytes(timeline, config, compressed=True)) == content
    events = json.loads(content)["traceEvents"]
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert set(tracks) <= set(names)
    for track in tracks.values():  # slices of a track do not overlap: Perfetto would drop some
        track.sort(key=lambda event: event["args"]["start_cycle"])
        for one, after in zip(track, track[1:]):
            one_args = one["args"]
            cycles = one_args.get("cycles", config.host.step_cycles)
            assert one_args["start_cycle"] + cycles <= after["args"]["start_cycle"]
        assert all(event["ts"] == event["args"]["start_cycle"] / 1000 for event in track)
    for unit in Unit:
        busy = sum(event["args"]["cycles"] for event in tracks[DEVICE, unit + 1])
        assert busy == run.ledger.units[unit.label]
    launches = tracks[DECODING, LAUNCHES]
    assert {event["name"] for event in launches} == {"target", "draft"}
    assert len(launches) == sum(run.ledger.launches.values())
    assert sum(event["args"]["cycles"] for event in launches) == run.ledger.device_cycles
    assert len(tracks[DECODING, HOST]) == len(launches) + len(run.steps)
    last = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    assert last == pytest.approx(run.ledger.cycles / 1000)
    assert any("keys" in event["name"] for event in tracks[DEVICE, Unit.STORE + 1]), "commands have their notes"


def test_no_timeline_without_a_wish(traced: tuple[Generation, Timeline]) -> None:
    run, timeline = traced
    assert sum(isinstance(record, StepRecord) for record in timeline) == len(run.steps)
    assert sum(isinstance(record, LaunchRecord) for record in timeline) == sum(run.ledger.launches.values())
    assert run.prefill.timeline is None
