"""Training of a target tuned to draft for itself, which needs torch: what streams see, and resuming bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gemmule.sw.training.networks.export import ModelShape
from gemmule.sw.training.networks.low_rank import LowRank
from gemmule.sw.training.networks.model import LanguageModel
from gemmule.sw.training.running import autocast, open_place
from gemmule.sw.training.stages import tuning_steps
from gemmule.sw.training.stages.answers import Answers
from gemmule.sw.training.stages.tuning_recipe import TuningRecipe

SHAPE = ModelShape(hidden_size=32, intermediate_size=64, num_layers=4, num_heads=1, vocab_size=61, max_positions=40,
                   activation="relu2")
PLAN = TuningRecipe(ranks=(4, 2, 2, 2), exit=1, others=(2, 3), streams=3, stream_layers=2, chosen=4, prompt=4,
                    context=24, kept=5, steps=6, warm_up=2, text_rows=2, pool_rows=1, judged=3)
PLACE = open_place(1, compiled=False)


def low_rank(streams: int = 3) -> LowRank:
    torch.manual_seed(1)
    weights = {name: weight.detach().numpy() for name, weight in LanguageModel(SHAPE).named_parameters()}
    model = LowRank(SHAPE, weights, PLAN.ranks, streams, SHAPE.num_layers - PLAN.stream_layers)
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):
            weight.copy_(0.2 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(number)))
        model.streams.copy_(torch.randn((8, 32), generator=torch.Generator().manual_seed(99))[:streams])
    return model


@torch.no_grad()
def test_streams_see_what_their_token_sees() -> None:
    """Neither later tokens, nor other tokens' streams, nor streams behind them."""
    tokens = torch.randint(0, 61, (2, 20), generator=torch.Generator().manual_seed(5))
    changed_later = torch.where(torch.arange(20) > 8, (tokens + 1) % 61, tokens)
    with autocast(PLACE):
        whole = low_rank().hidden(tokens, behind=torch.tensor([[3, 8], [8, 9]]))[1]
        alone = low_rank().hidden(changed_later, behind=torch.tensor([[8], [8]]))[1]
        fewer = low_rank(2).hidden(tokens, behind=torch.tensor([[3, 8], [8, 9]]))[1]
    assert whole is not None
    assert alone is not None
    assert fewer is not None
    assert whole.shape == (2, 2, 3, 32)
    assert torch.allclose(whole[0, 1], alone[0, 0], atol=2e-2)
    assert torch.allclose(whole[1, 0], alone[1, 0], atol=2e-2)
    assert torch.allclose(whole[:, :, :2], fewer, atol=2e-2)
    assert not torch.allclose(whole[0, 0], whole[0, 1], atol=2e-2)


def test_training_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six steps at once, and in two runs; another recipe does not go on from them."""
    random = np.random.default_rng(4)

    def answers(count: int, told: int) -> Answers:
        return Answers(random.integers(0, 61, (count, 25)).astype(np.uint16),
                       random.integers(0, 61, (count, told, 5)).astype(np.uint16),
                       np.full((count, told, 5), -2.0, np.float16))

    lessons = tuning_steps.Lessons(answers(5, 24), answers(4, 21), answers(3, 21))
    torch.manual_seed(2)
    weights = {name: weight.detach().numpy() for name, weight in LanguageModel(SHAPE).named_parameters()}
    monkeypatch.setattr(tuning_steps, "TARGET", SHAPE)
    monkeypatch.setattr(tuning_steps, "lessons_of", lambda *given: lessons)

    def tuned(plan: TuningRecipe, name: str, most: int | None = None) -> dict[str, Any] | None:
        return tuning_steps.run(plan, weights, 1e4, pytest.fail, tmp_path / name, PLACE, most)

    whole = tuned(PLAN, "whole")
    assert tuned(PLAN, "parts", 2) is None
    parts = tuned(PLAN, "parts")
    assert whole is not None
    assert parts is not None
    assert whole["curve"] == parts["curve"]
    assert parts["resumed"] == 1
    states = [torch.load(tmp_path / name / "tuned.pt", weights_only=True)["model"] for name in ("whole", "parts")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    with pytest.raises(ValueError, match="is of another recipe or seed"):
        tuned(replace(PLAN, rate=1e-3), "parts")
