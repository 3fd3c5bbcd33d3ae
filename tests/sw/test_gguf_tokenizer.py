"""Tokenizers of GGUF files against the ``tokenizer.json`` that they were made from, and what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from gemmule.sw.errors import InputError
from gemmule.sw.models.gguf_tokenizer import SPLITS
from gemmule.sw.models.sources import read_source

from .checkpoints import TEXTS, byte_level, gguf_with, sentencepiece, text_keys


def made(pre: str) -> Tokenizer:
    """The same vocabulary with a way to cut text that is written here again, from the models' own files."""
    tokenizer = Tokenizer.from_str(json.dumps(byte_level()))
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    after = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    rest = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = {
        "gpt-2": whole,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), whole]),
        "llama-bpe": pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(letters + r"\p{N}{1,3}" + rest), "isolated"), after]),
        "qwen2": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(letters + r"\p{N}" + rest), "isolated"), after]),
    }[pre]
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens(["<|user|>"])
    return tokenizer


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_bytes(pre: str, tmp_path: Path) -> None:
    found = read_source(gguf_with(tmp_path / "model.gguf", text_keys(pre, add_bos_token=False)))
    wanted = made(pre)
    for text in TEXTS:
        got = found.tokenizer.encode(text).ids
        assert got == wanted.encode(text).ids, text
        assert found.tokenizer.decode(got, skip_special_tokens=False) == wanted.decode(got, skip_special_tokens=False)
        assert Tokenizer.from_str(found.tokenizer_json).encode(text).ids == got
    assert found.tokenizer.encode("<|user|>").ids == [320]
    assert found.tokenizer.decode([0, 320]) == "<|user|>"  # <s> is special, the user's own token is not


def test_ways_to_cut_differ() -> None:
    """So that each of them is seen by the texts."""
    found = {pre: [tuple(made(pre).encode(text).ids) for text in TEXTS] for pre in ("gpt-2", "smollm", "qwen2")}
    assert len({tuple(value) for value in found.values()}) == 3
    assert len(SPLITS) > 8


def test_pieces(tmp_path: Path) -> None:
    """Scores decide; what has no piece is spelled in bytes; a text begins with a space that decoding takes away."""
    found = read_source(gguf_with(tmp_path / "model.gguf", sentencepiece()))
    assert found.bos == (1,)
    assert found.ends == (2,)
    for text in TEXTS:
        if not text.startswith(" ") and "<s>" not in text:
            assert found.tokenizer.decode(found.tokenizer.encode(text).ids) == text
    assert found.tokenizer.encode("the").tokens == ["<s>", "▁the"]
    assert found.tokenizer.encode("ß", add_special_tokens=False).tokens == ["▁", "<0xC3>", "<0x9F>"]
    assert found.tokenizer.encode("</s>").ids == [1, 2]
    keys = sentencepiece() | {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False}
    found = read_source(gguf_with(tmp_path / "other.gguf", keys))
    assert found.tokenizer.encode("the").tokens[0] != "▁the"
    assert found.tokenizer.decode(found.tokenizer.encode(" a").ids) == " a"


def test_bos_and_eos(tmp_path: Path) -> None:
    """Where nothing is said: bos for pieces and Llama 3, none for other byte-level ones."""
    def around(**keys: Any) -> list[int]:
        found = read_source(gguf_with(tmp_path / "model.gguf", text_keys(**keys)))
        return list(found.tokenizer.encode("a").ids)

    inner = around()
    assert around(pre="llama-bpe") == [0, *inner]
    assert around(pre="llama-bpe", add_bos_token=False) == inner
    assert around(add_bos_token=True, add_eos_token=True) == [0, *inner, 1]
    assert around(add_bos_token=True, bos_token_id=None) == inner


def test_ends_and_chat(tmp_path: Path) -> None:
    found = read_source(gguf_with(tmp_path / "model.gguf", text_keys(eot_token_id=5, eom_token_id=1) | {
        "tokenizer.chat_template": "{{ bos_token }}"}))
    assert found.ends == (1, 5)
    assert found.chat is not None
    assert found.chat.template == "{{ bos_token }}"
    assert found.chat.tokens == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    assert found.notes[0].startswith("GGUF: tensors F32")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model": "bert"}, "tokenizer.ggml.model must be 'gpt2' or 'llama', not 'bert'"),
    "no model": ({"model": None}, "tokenizer.ggml.model is missing"),
    "no tokens": ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
    "numbers": ({"tokens": [1, 2]}, "tokenizer.ggml.tokens.0 must be text, not 1"),
    "twice": ({"tokens": ["a", "b", "a"], "token_type": None}, "tokens names 'a' twice"),
    "kinds": ({"token_type": [1, 1]}, "token_type must have as many elements as tokenizer.ggml.tokens, 321, not 2"),
    "way to cut": ({"pre": "tekken"}, "tokenizer.ggml.pre must be one of gpt-2, default"),
    "merge": ({"merges": ["a b", "ab"]}, "merges must be pairs of tokens, not 'ab' (number 1)"),
    "merge of none": ({"merges": ["a zz"]}, "is not a tokenizer"),
    "bos": ({"bos_token_id": 321}, "bos_token_id must be a token from 0 to 320, not 321"),
    "bos as text": ({"bos_token_id": "0"}, "tokenizer.ggml.bos_token_id must be an integer, not '0'"),
    "flag": ({"add_bos_token": 1}, "tokenizer.ggml.add_bos_token must be true or false, not 1"),
    "scores": ({"model": "llama"}, "tokenizer.ggml.scores is missing"),
    "many": ({"tokens": [str(number) for number in range(341)], "token_type": None},
             "tokenizer.ggml.tokens must be at most the model's 340, not 341"),
}


@pytest.mark.parametrize("label", REFUSED)
def test_refused(label: str, tmp_path: Path) -> None:
    changes, says = REFUSED[label]
    path = gguf_with(tmp_path / "model.gguf", text_keys(**changes))
    with pytest.raises(InputError) as error:
        read_source(path)
    text = str(error.value)
    assert says in text
    assert str(path) in text
    assert "\n" not in text


def test_template_of_another_type(tmp_path: Path) -> None:
    path = gguf_with(tmp_path / "model.gguf", text_keys() | {"tokenizer.chat_template": 5})
    with pytest.raises(InputError, match="tokenizer.chat_template must be text, not 5"):
        read_source(path)
