"""What stays in DRAM: to the byte as the compiler places it, and what fits smaller memories."""

from __future__ import annotations

import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.place import round_up
from gemmule.config import load_config
from gemmule.sw.decoding.resident import BESIDE, _Model, resident
from gemmule.sw.decoding.session import ALIGN, Session
from gemmule.sw.models.bundled_models import bundled_model

BASE = load_config("base")
PERIOD = BASE.dram.banks * BASE.dram.row_bytes


@pytest.mark.parametrize("launch", ["pass", "draft", "step"])
def test_to_the_byte(launch: str) -> None:
    """Models and caches add up to what stands in DRAM; another context is what the compiler makes of it."""
    with Session(BASE, launch=launch) as session:
        found = resident(session)
        target, draft = session.target, session.draft
        assert draft is not None
        assert target.prefill is not None
        assert draft.prefill is not None
        target_bytes, draft_bytes = (round_up((model.loop or model.program).size, PERIOD) + model.prefill.size
                                     for model in (target, draft))
        assert found["models"]["target"] == {
            "bytes": target_bytes - target.program.symbols[CACHE][1],
            "kv_bytes": target.program.symbols[CACHE][1], "prefill_rows": target.prefill.max_rows}
        assert found["models"]["draft"]["bytes"] + found["models"]["draft"]["kv_bytes"] == draft_bytes
        assert draft.prefill.base_address + draft.prefill.size == draft.program.base_address + draft_bytes
        if (step := draft.step) is not None:
            assert found["models"]["step"]["bytes"] == step.size
            draft_bytes = round_up(draft_bytes, ALIGN) + step.size
        assert (step is not None) is (launch == "step")
        assert found["bytes"] == round_up(target_bytes, ALIGN) + draft_bytes
        assert found["kv_bytes"] == found["by_batch"][0]["kv_bytes"]["256"] == sum(
            model.program.symbols[CACHE][1] for model in (target, draft))
        for length in (96, 200):
            made = compile_network(bundled_model("target").network, BASE, rows=target.program.max_rows, tokens=True,
                                   context=length)
            assert _Model(target).size(length, 1) == round_up(made.size, PERIOD) + target.prefill.size
    assert (found["largest_context"], found["context_limit"]) == (256, "the networks' positions")
    assert (found["largest_batch"], found["batch_limit"]) == (32, "texts of a pass, at most 32")


def test_another_batch() -> None:
    """What the compiler takes for a batch lies between the caches alone and those with the room that is left."""
    with Session(BASE) as alone, Session(BASE, batch=4, rows=alone.target.program.max_rows // 4) as session:
        own = resident(session)
        told = {row["batch"]: row for row in resident(alone)["by_batch"]}[4]
    assert own["batch"] == 4
    assert own["kv_bytes"] <= told["kv_bytes"]["256"] < own["kv_bytes"] * 1.1, "as many rows a text as alone"
    assert own["bytes"] - own["kv_bytes"] < resident(alone)["bytes"] - resident(alone)["kv_bytes"] + BESIDE


@pytest.mark.parametrize("bits", [22, 23])
def test_smaller_memories(bits: int) -> None:
    """The longest context and largest batch that are told fit, one more does not."""
    config = BASE.model_copy(update={"address_bits": bits})
    with Session(config) as session:
        found = resident(session)
        models = [_Model(model) for model in (session.target, session.draft) if model]
    for row in found["by_batch"]:
        room, texts = row["dram_context"], row["batch"]
        sizes = [sum(round_up(model.size(length, texts), ALIGN if model is models[0] else 1) for model in models)
                 + (BESIDE if texts > 1 else 0) for length in (max(1, room), room + 1)]
        assert sizes[0] <= 1 << bits or not room
        assert sizes[1] > 1 << bits
        assert row["largest_context"] == min(room, 256)
    rooms = [row["dram_context"] for row in found["by_batch"]]
    assert rooms == sorted(rooms, reverse=True)
    assert found["largest_batch"] == {22: 2, 23: 10}[bits]
    assert found["batch_limit"] == "DRAM"
    assert rooms[0] > 256 == found["largest_context"]
