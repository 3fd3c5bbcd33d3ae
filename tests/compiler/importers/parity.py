"""Logits of every family against transformers. An own target, `make parity`: it needs the extra of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, Rows

from ..families import make, write
from .cases import CASES, MORE, MOST_ERROR, Case, error, ours, theirs, tokens
from .test_config import RECORDS
from .vectors import digest, sample, vectors

LEAST = 85
"""Configs that are compared."""
_WINDOWED = {"use_sliding_window": True, "max_window_layers": 0, "max_sequence_length": 5}
_OURS = {"_anything": 7, "is_llama_config": True, "transformers.js_config": {"dtype": "q4"}, "pretraining_tp": 1}
LEFT_OUT: dict[str, dict[str, Any]] = {
    "gpt2": _OURS | {
        "n_ctx": 3, "resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5, "summary_type": "mean",
        "summary_use_proj": False, "summary_activation": "tanh", "summary_proj_to_labels": False,
        "summary_first_dropout": 0.5, "reorder_and_upcast_attn": True},
    "opt": _OURS | {"dropout": 0.5, "activation_dropout": 0.5, "layerdrop": 0.5, "init_std": 0.5},
    "llama": _OURS | _WINDOWED,
    "mistral": _OURS | _WINDOWED | {"attention_bias": True, "mlp_bias": True},
    "qwen2": _OURS | {"attention_bias": True, "mlp_bias": True, "max_sequence_length": 5, "use_mrope": False},
    "qwen3": _OURS | {"mlp_bias": True, "max_sequence_length": 5, "use_mrope": False},
    "phi": _OURS | {"resid_pdrop": 0.5, "embd_pdrop": 0.5},
    "gpt_neox": _OURS | {"hidden_dropout": 0.5},
}
"""Keys of each decoder that its importer leaves out."""
pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]


def test_how_many() -> None:
    every = [*CASES, *MORE]
    assert len({case.label for case in every}) == len(every) >= LEAST
    print(f"{len(every)} configs of {len({case.family for case in every})} kinds of checkpoints")


@pytest.mark.parametrize("case", [*CASES, *MORE], ids=lambda case: case.label)
def test_logits(case: Case, tmp_path: Path) -> None:
    folder = case.write(tmp_path)
    wanted = theirs(folder)
    found = error(ours(folder), wanted)
    print(f"{case.label}: {found:.2g} of the largest logit")
    assert found <= MOST_ERROR


def test_committed_vectors_are_theirs(tmp_path: Path) -> None:
    known = vectors()
    for number, case in enumerate(CASES):
        folder = case.write(tmp_path / str(number))
        assert digest(folder) == known[case.label][0]
        assert np.allclose(known[case.label][1], sample(theirs(folder)), rtol=1e-5, atol=1e-5)


def test_what_they_save(tmp_path: Path) -> None:
    """A directory that transformers writes today, keys and names of tensors as they come."""
    import transformers
    kinds = {"bert": transformers.AutoModel, "bert-classifier": transformers.AutoModelForSequenceClassification}
    for family in ("gpt2", "opt", "llama", "llama-tied", "llama3", "mistral", "qwen2", "qwen3", "phi", "gpt_neox",
                   *kinds):
        folder = write(tmp_path / family, make(family))
        model = kinds.get(family, transformers.AutoModelForCausalLM).from_pretrained(folder)
        model.save_pretrained(tmp_path / f"{family}-saved", max_shard_size="300KB")
        assert len(list((tmp_path / f"{family}-saved").glob("*.safetensors"))) > 1
        assert np.array_equal(ours(folder), ours(tmp_path / f"{family}-saved")), family


@pytest.mark.parametrize("family", [*LEFT_OUT])
def test_keys_that_change_nothing(family: str, tmp_path: Path) -> None:
    """Those of the family that its importer leaves out do nothing there either, and it says so."""
    keys = LEFT_OUT[family]
    plain = write(tmp_path / "plain", make(family, layers=2))
    made = make(family, layers=2)
    made.config |= keys
    given = write(tmp_path / "given", made)
    assert np.array_equal(theirs(given), theirs(plain))
    (note,) = load_network(given).notes
    assert all(key in note for key in keys), note


def test_every_key_of_a_family_that_changes_nothing_is_tried() -> None:
    for family, keys in LEFT_OUT.items():
        assert set(keys) >= RECORDS[family].HARMLESS


def test_steps_with_their_cache(tmp_path: Path) -> None:
    """Token by token through Mistral's window, both with a cache."""
    import torch
    import transformers
    folder = write(tmp_path, make("mistral"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    network, past = load_network(folder), None
    cache, interpreter = Cache(network.graph), FloatInterpreter(network)
    for position, token in enumerate(tokens()):
        with torch.no_grad():
            out = model(torch.tensor([[int(token)]]), past_key_values=past, use_cache=True)
        past = out.past_key_values
        found = interpreter.forward(Rows.chain([int(token)], position), cache)
        assert error(found[0], out.logits[0, 0].numpy()) <= MOST_ERROR, position
