"""Known architectures: their shapes add up to the published numbers of parameters, and sizes can be changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.architectures import architecture, architectures
from gemmule.sw.limits import ARCHITECTURES

LEFT_OUT = {"bert-base": 768 * 769, "bert-large": 1024 * 1025}
"""Of published networks: BERT's pooler, which `BertModel` is imported without."""


def test_the_command_offers_all() -> None:
    assert set(ARCHITECTURES) == set(architectures())
    for found in architectures().values():
        assert found.source.startswith("https://huggingface.co/")
        assert found.source.endswith("/config.json")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_are_those_of_the_published_network(name: str) -> None:
    """Stored tensors once: GPT-2's q, k, v are parts of one, a tied head is the embedding."""
    assert architecture(name).numbers == architecture(name).parameters - LEFT_OUT.get(name, 0)


def test_what_no_importer_reads_is_refused_by_name() -> None:
    other = replace(architecture("gpt2"), name="other", config={"model_type": "other"})
    with pytest.raises(CompileError, match="other: model_type is 'other'; supported: "):
        other.graph()


def test_unknown() -> None:
    with pytest.raises(CompileError, match="architecture must be one of bert-base, .* not 'gpt5'"):
        architecture("gpt5")


def test_other_sizes() -> None:
    small = architecture("tinyllama-1.1b").resized("layers", 3).resized("hidden", 512).resized("positions", 99).graph()
    assert (small.layers, small.nodes[0].columns, small.positions) == (3, 512, 99)
    assert [(node.heads, node.kv_heads, node.head_dim) for node in small.attentions] == [(8, 1, 64)] * 3
    gpt = architecture("gpt2").resized("hidden", 128).graph()
    assert gpt.by_name["0.up"].columns == 512  # four times, as the family has it where nothing is said
    assert architecture("gpt2").config["n_embd"] == 768


@pytest.mark.parametrize(("value", "message"), [
    (100, "hidden of tinyllama-1.1b must be a multiple of 64, the columns of a head, not 100"),
    (0, "must be a multiple of 64"),
    (64 * 17, "must leave heads a multiple of KV heads, not 1088: 17 and 2")])
def test_sizes_that_do_not_divide(value: int, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        architecture("tinyllama-1.1b").resized("hidden", value)
