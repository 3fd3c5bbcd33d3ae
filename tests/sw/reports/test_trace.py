"""A trace holds every command at its cycles, in the form that Perfetto reads."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.isa import Unit
from gemmule.sw.decoding.generate import Generation
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.timeline import LaunchRecord, StepRecord, Timeline
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.reports.trace import DECODING, DEVICE, HOST, LAUNCHES, trace_bytes

from ..test_cli import run as main_run


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
    assert [event["name"] for event in launches][:5] == [
        "prefill (target)", "prefill (draft)", "draft", "draft", "verify (target)"]
    assert {event["name"] for event in launches} == {"prefill (target)", "prefill (draft)", "draft", "verify (target)"}
    assert sum(event["name"] == "verify (target)" for event in launches) == len(run.steps)
    assert sum(event["name"] == "draft" for event in launches) == run.drafted
    for model in ("target", "draft"):
        assert sum(event["args"]["cycles"] for event in launches if event["args"]["model"] == model
                   ) == run.ledger.by_model[model]
    assert len(launches) == sum(run.ledger.launches.values())
    assert sum(event["args"]["cycles"] for event in launches) == run.ledger.device_cycles
    assert len(tracks[DECODING, HOST]) == len(launches) + len(run.steps)
    last = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    assert last == pytest.approx(run.ledger.cycles / 1000)
    assert any("keys" in event["name"] for event in tracks[DEVICE, Unit.STORE + 1]), "commands have their notes"


def test_a_launch_that_drafts_and_verifies() -> None:
    """Two slices, one behind the other, with the cycles that the report tells of each model."""
    timeline: Timeline = []
    with Session(load_config("base"), launch="step") as session:
        run = session.generate("draft", encode("import os\n"), 8, 2, timeline=timeline)
    events = json.loads(trace_bytes(timeline, load_config("base"), compressed=False))["traceEvents"]
    launches, host = ([event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == track]
                      for track in ((DECODING, LAUNCHES), (DECODING, HOST)))
    behind = sorted(launches, key=lambda event: event["ts"])[-2 * sum(drafted > 0 for drafted, _ in run.steps):]
    assert {event["name"] for event in behind} == {"draft", "verify (target)"}
    for draft, verify in zip(launches, launches[1:]):
        if draft["name"] == "draft":
            assert verify["name"] == "verify (target)"
            assert verify["args"]["start_cycle"] == draft["args"]["start_cycle"] + draft["args"]["cycles"]
    for model in ("target", "draft"):
        assert sum(event["args"]["cycles"] for event in launches if event["args"]["model"] == model
                   ) == run.ledger.by_model[model]
    assert sum(event["name"].startswith("launch") for event in host) == sum(run.ledger.launches.values())
    assert any(event["name"] == "launch draft and verify (target)" for event in host)


def test_what_the_trace_processor_needs(traced: tuple[Generation, Timeline]) -> None:
    """Rules of Perfetto's importer of the JSON trace event format: what breaks one is dropped there without a word.

    https://perfetto.dev/docs/getting-started/other-formats: complete events with numbers for time and duration in
    microseconds, strictly nested within a track; metadata names processes and threads; counters have numbers alone.
    """
    content = json.loads(trace_bytes(traced[1], load_config("base"), compressed=False))
    assert content["displayTimeUnit"] in ("ms", "ns")
    kinds, tracks, named = set(), defaultdict(list), set()
    for event in content["traceEvents"]:
        kinds.add(event["ph"])
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
        assert event["name"]
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            named.add((event["pid"], event["tid"]))
            continue
        assert isinstance(event["ts"], int | float)
        assert event["ts"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
            continue
        assert isinstance(event["tid"], int)
        assert event["dur"] >= 0
        # The importer takes times in whole nanoseconds.
        tracks[event["pid"], event["tid"]].append((round(event["ts"] * 1000), round(event["dur"] * 1000)))
    assert kinds == {"M", "X", "C"}
    assert set(tracks) <= named
    assert {(DEVICE, unit + 1) for unit in (Unit.LOAD, Unit.STORE, Unit.MATRIX, Unit.VECTOR)} <= set(tracks)
    for pieces in tracks.values():
        pieces.sort()
        assert all(start + length <= after for (start, length), (after, _) in zip(pieces, pieces[1:]))


def test_a_product_as_a_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "gemm.json"
    assert main_run(monkeypatch, "run", "gemm", "--shape", "9x12x8", "--config", "tiny", "--timing-only", "--trace",
                    str(path), "--json", str(tmp_path / "numbers.json")) == 0
    cycles = json.loads((tmp_path / "numbers.json").read_text())["cycles"]
    pieces = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    (launch,) = [event for event in pieces if event["name"] == "product"]
    assert launch["args"]["cycles"] == cycles
    units = [event for event in pieces if event["pid"] == DEVICE]
    begin = launch["args"]["start_cycle"]
    assert all(begin <= event["args"]["start_cycle"] < begin + cycles for event in units)
    assert {event["tid"] - 1 for event in units} >= {Unit.LOAD, Unit.STORE, Unit.MATRIX, Unit.VECTOR}


def test_no_timeline_without_a_wish(traced: tuple[Generation, Timeline]) -> None:
    run, timeline = traced
    assert sum(isinstance(record, StepRecord) for record in timeline) == len(run.steps)
    assert sum(isinstance(record, LaunchRecord) for record in timeline) == sum(run.ledger.launches.values())
    assert run.prefill.timeline is None
