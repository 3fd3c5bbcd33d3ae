"""Passes of few rows by programs of their own, as far as these see; the text is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmule.compiler.files.model_file import Made, save_model
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.place import round_up
from gemmule.config import load_config
from gemmule.sw.decoding.resident import resident
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.timeline import LaunchRecord, Timeline
from gemmule.sw.models.bundled_models import MODELS
from gemmule.sw.models.pair import Pair, imported_pair
from tests.compiler.integer_networks import Sizes, random_network

EDGE = load_config("edge")
TOKENIZER = next(MODELS.rglob("tokenizer.json")).read_text("utf-8")
MADE = Made(version="1", bits=8, group=0, method="nearest", smooth=False, seed=1, calibration_sha256="0", prefix=(0,))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path: Path = tmp_path_factory.mktemp("single") / "model"
    save_model(path, random_network(Sizes(family="llama", hidden=48, inner=64, heads=8, kv_heads=1, head_dim=16,
                                          layers=1, vocab=1024, positions=1500, prefix=1), 1), MADE, TOKENIZER, (1,))
    return imported_pair(path)


def _programs(session: Session, timeline: Timeline) -> list[str]:
    """Of each launch: `narrow` and a number, `prefill`, or `program`."""
    target = session.target
    known = {f"narrow {i}": one for i, one in enumerate(target.narrow)} | {
        "program": target.program, "prefill": target.prefill}
    return [next(name for name, program in known.items() if program and tuple(record.commands) == program.commands)
            for record in timeline if isinstance(record, LaunchRecord)]


def test_as_far_as_it_sees(pair: Pair) -> None:
    """Behind its last position the other program goes on; without it, by the interpreter and by lookup the same text.
    """
    runs = []
    for interpreted in (False, True):
        with Session(EDGE, pair=pair, interpreted=interpreted) as session:
            alone = [i for i, one in enumerate(session.target.narrow) if one.max_rows == 1]
            number, timeline = alone[-1], list[object]()
            single, last = session.target.narrow[0], session.target.narrow[number]
            assert alone[0] == 0
            assert last.max_positions == session.target.program.max_positions
            prompt = (pair.encode("import os\n") * 500)[:single.max_positions - 4]
            runs.append(session.generate("ar", prompt, 8, timeline=timeline))
            steps = [name for name in _programs(session, timeline) if name != "prefill"]
            assert steps[-8:] == ["narrow 0"] * 4 + [f"narrow {number}"] * 4
            runs.append(session.generate("pld", prompt, 8))
            session.target.narrow = ()
            runs.append(session.generate("ar", prompt, 8))
    assert len({tuple(run.tokens) for run in runs}) == 1
    for device, interpreter in zip(runs[:3], runs[3:], strict=True):
        assert device.ledger.cycles == interpreter.ledger.cycles
    assert runs[0].ledger.cycles < runs[2].ledger.cycles


def test_what_stays_in_memory(pair: Pair) -> None:
    with Session(EDGE, pair=pair) as session:
        target, found, period = session.target, resident(session), EDGE.dram.banks * EDGE.dram.row_bytes
        assert target.narrow
        assert target.prefill
        end = round_up(target.program.size, period) + target.prefill.size
        for one in target.narrow:
            end = round_up(end, period) + one.size
            assert one.base_address + one.size == end
        assert found["bytes"] == found["models"]["target"]["bytes"] + target.program.symbols[CACHE][1] == end


def test_not_of_batches(pair: Pair) -> None:
    with Session(EDGE, pair=pair, batch=2) as session:
        assert session.target.narrow == ()
