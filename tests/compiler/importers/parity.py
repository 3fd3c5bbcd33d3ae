"""Logits of every family against transformers. An own target, `make parity`: it needs the extra of that name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, Rows

from ..families import make, write
from .cases import CASES, MOST_ERROR, Case, error, ours, theirs, tokens
from .vectors import digest, sample, vectors

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
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
    for family in ("gpt2", "opt", "llama", "llama-tied", "mistral", *kinds):
        folder = write(tmp_path / family, make(family))
        model = kinds.get(family, transformers.AutoModelForCausalLM).from_pretrained(folder)
        model.save_pretrained(tmp_path / f"{family}-saved", max_shard_size="300KB")
        assert len(list((tmp_path / f"{family}-saved").glob("*.safetensors"))) > 1
        assert np.array_equal(ours(folder), ours(tmp_path / f"{family}-saved")), family


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
