"""GGUF files against transformers, which reads them too: SmolLM2, and small files in every type. `make parity`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, Rows
from gemmule.sw.models.published import published_file

from ..families import make
from ..gguf_files import write_gguf
from .cases import MOST_ERROR, error

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]
TOKENS = [1, 9690, 198, 2683, 359, 253, 5356, 28, 1343, 284, 7, 49151, 0]


def differences(path: Path, tokens: list[int]) -> float:
    """The largest difference of logits, in the largest logit."""
    import torch
    import transformers
    network = load_network(path)
    ours = FloatInterpreter(network).forward(Rows.chain(tokens), Cache(network.graph))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32).eval()
    with torch.no_grad():
        theirs = model(torch.tensor([tokens])).logits[0].numpy()
    return error(ours, theirs)


def test_smollm2() -> None:
    assert differences(published_file("smollm2"), TOKENS) <= MOST_ERROR


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
@pytest.mark.parametrize("family", ["llama", "llama-tied", "gpt2"])
def test_small_files(family: str, dtype: str, tmp_path: Path) -> None:
    """Their reader wants a tokenizer's list of tokens to know the vocabulary by, and takes GPT-2's inner columns and
    positions to be those of all its networks."""
    made = make(family, layers=2, vocab=40, head_dim=32)
    sizes = {72: 96, 100: 384} | ({64: 1024} if family == "gpt2" else {})
    made.tensors = {name: np.resize(value, tuple(sizes.get(size, size) for size in value.shape))
                    for name, value in made.tensors.items()}
    made.config |= ({"n_inner": 384, "n_positions": 1024} if family == "gpt2"
                    else {"intermediate_size": 384, "hidden_size": 96})
    path = write_gguf(tmp_path / "model.gguf", made, dtype=dtype,
                      metadata={"tokenizer.ggml.tokens": [str(number) for number in range(40)]})
    assert differences(path, [3, 1, 4, 1, 5, 9, 2, 6]) <= MOST_ERROR
