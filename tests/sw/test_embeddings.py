"""Vectors of sentences: pooling by hand, batches that change nothing, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.sw.errors import InputError
from gemmule.sw.text.tokens import parse_tokenizer, sentence_windows
from gemmule.sw.workloads import embeddings
from gemmule.sw.workloads.embeddings import embed, pooled
from tests.compiler.integer_encoders import EncoderSizes, random_encoder
from tests.compiler.integer_networks import Sizes, random_network

WORDS = {word: number for number, word in enumerate(["[CLS]", "[SEP]", "[UNK]", *(f"w{i}" for i in range(50))])}


@pytest.fixture
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    return made


def test_pooled() -> None:
    hidden = np.array([[3, 0], [1, 4], [0, 0], [-2, 0], [5, 8]])
    found = pooled(hidden, np.array([0, 0, 1, 7, 0]))
    assert np.allclose(found, [[3 / 5, 4 / 5], [0, 0], [-1, 0]])
    assert np.allclose(pooled(hidden, np.array([0, 0, 1, 7, 0]), "first"), [[1, 0], [0, 0], [-1, 0]])
    assert np.allclose(pooled(hidden * 100, np.array([0, 0, 1, 7, 0])), found)


def test_embed(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_encoder(EncoderSizes(), 7)
    sentences = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10", "w1 w2 w4"]
    found = embed(network, tokenizer, sentences)
    for sentence, vector in zip(sentences, found, strict=True):
        ids = [0, *(WORDS[word] for word in sentence.split()), 1]
        rows = IntegerInterpreter(network).forward(Rows.chain(ids), Cache(network.graph))
        mean = rows.mean(axis=0)
        assert np.allclose(vector, mean / np.linalg.norm(mean))
    monkeypatch.setattr(embeddings, "PASS", 6)
    assert np.allclose(embed(network, tokenizer, sentences), found, atol=1e-12)
    assert not np.allclose(embed(network, tokenizer, sentences, "first"), found)
    assert embed(network, tokenizer, []).shape == (0, 24)


def test_refused(tokenizer: Tokenizer) -> None:
    for network in (random_encoder(EncoderSizes(labels=2), 1), random_network(Sizes(family="gpt2"), 1)):
        with pytest.raises(InputError, match="must go through an encoder that ends in hidden rows, not in '"):
            embed(network, tokenizer, ["w1"])
    with pytest.raises(InputError, match="at most 40 tokens, not 43: shorten 'w1 w1 w1 "):
        embed(random_encoder(EncoderSizes(), 1), tokenizer, ["w1 " * 41])


def test_windows_of_sentences(tokenizer: Tokenizer) -> None:
    tokenizer.enable_truncation(4)  # as the files of sentence encoders have it
    tokenizer.enable_padding(length=9)
    mine = parse_tokenizer(tokenizer.to_str(), "tokenizer.json", 61)
    text = " ".join(f"w{i}" for i in range(10))
    assert sentence_windows(mine, text, 5, "--calibrate").tolist() == [
        [0, 3, 4, 5, 1], [0, 6, 7, 8, 1], [0, 9, 10, 11, 1]]  # what does not fill one is left out
    assert mine.encode(text).ids == [0, *range(3, 13), 1]
    with pytest.raises(InputError, match="--window must be more than the 2 special tokens of a sequence, not 2"):
        sentence_windows(mine, text, 2, "--calibrate")
    with pytest.raises(InputError, match="--calibrate must hold at least 20 tokens, not 12"):
        sentence_windows(mine, text, 20, "--calibrate")
