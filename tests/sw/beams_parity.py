"""Beam search beside Hugging Face's ``generate(num_beams)``, on a random network of two tables; writes the vectors.

    python -m tests.sw.beams_parity --write    # search anew with the installed Transformers

`make parity` searches again; ``test_beams.py`` compares the committed vectors with ours, without Transformers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

pytestmark = pytest.mark.parity

FILE = Path(__file__).with_name("beams.json")
VOCAB, ENDS, SEED, NEW = 24, [3, 7], 20261127, 12
CASES = [(width, penalty, early) for width in (2, 3, 5, 8) for penalty in (0.0, 0.6, 1.0, 2.0)
         for early in (False, True)]
PROMPTS = ([1, 2], [5, 9, 4], [11])


class TableConfig(PretrainedConfig):
    """Of a network without layers."""

    model_type = "tables"
    num_hidden_layers = 1


class Tables(PreTrainedModel, GenerationMixin):
    """Logits are a row of one table by the last token and one of another by the token before."""

    config_class = TableConfig
    _is_stateful = False

    def __init__(self, config: TableConfig, tables: np.ndarray) -> None:
        super().__init__(config)
        self.tables = torch.nn.Parameter(torch.tensor(tables))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> CausalLMOutput:
        before = torch.cat([input_ids[:, :1], input_ids[:, :-1]], dim=1)
        return CausalLMOutput(logits=self.tables[0][input_ids] + self.tables[1][before])

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **_: Any) -> dict[str, Any]:
        return {"input_ids": input_ids}


def tables() -> np.ndarray:
    """Float64 [2, vocab, vocab], of thousandths, so that they are written exactly; ends are unlikely at first."""
    found = np.random.default_rng(SEED).integers(-3000, 3000, (2, VOCAB, VOCAB)) / 1000
    found[:, :, ENDS] += 0.3
    return found


def search() -> dict[str, Any]:
    """All searches."""
    model = Tables(TableConfig(vocab_size=VOCAB), tables()).double().eval()
    cases = []
    for prompt in PROMPTS:
        for width, penalty, early in CASES:
            with torch.no_grad():
                out = model.generate(
                    torch.tensor([prompt]), num_beams=width, num_return_sequences=width, length_penalty=penalty,
                    early_stopping=early, max_new_tokens=NEW, eos_token_id=ENDS, pad_token_id=0, do_sample=False,
                    use_cache=False, output_scores=True, return_dict_in_generate=True)
            texts = []
            for row in out.sequences[:, len(prompt):].tolist():
                end = next((place for place, token in enumerate(row) if token in ENDS), NEW - 1)
                texts.append(row[:end + 1])
            cases.append({"prompt": prompt, "width": width, "penalty": penalty, "early": early, "texts": texts,
                          "scores": out.sequences_scores.tolist()})
    return {"transformers": transformers.__version__, "vocab": VOCAB, "ends": ENDS, "new": NEW, "seed": SEED,
            "tables": (tables() * 1000).round().astype(int).tolist(), "cases": cases}


def test_committed_vectors_are_those_of_transformers() -> None:
    """Texts and scores; equal scores in any order."""
    committed, made = json.loads(FILE.read_text()), search()
    assert committed["tables"] == made["tables"]
    for one, other in zip(committed["cases"], made["cases"], strict=True):
        assert sorted(map(tuple, one["texts"])) == sorted(map(tuple, other["texts"]))
        np.testing.assert_allclose(one["scores"], other["scores"], atol=1e-6)


if __name__ == "__main__":
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(search()) + "\n")
