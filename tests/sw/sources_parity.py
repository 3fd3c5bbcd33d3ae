"""Tokens, ends and what is greedily generated, against transformers on the same folder or file. `make parity`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.ir import Cache, FloatInterpreter, Rows
from gemmule.sw.models.published import published_file
from gemmule.sw.models.sources import Source, read_source

from .checkpoints import TEXTS, folder_with, gguf_with, sentencepiece, text_keys

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]
NUMERALS = "٣٤٥ ½ Ⅷ"
"""What transformers does not cut apart for `smollm`, as it has no rule of that name; the model's own tokenizer does."""
USER = {"content": "<|user|>", "special": True, "lstrip": False, "rstrip": False, "normalized": False,
        "single_word": False}
FOLDERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "added": {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                                        "eos_token": "</s>", "added_tokens_decoder": {"320": USER}}},
    "flags": {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": {
        "320": USER | {"lstrip": True, "rstrip": True}}}},
    "bos": {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                                      "add_bos_token": True, "add_eos_token": False}},
    "bos and eos": {"tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True,
        "add_eos_token": True}},
    "old files": {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
                  "special_tokens_map.json": {"bos_token": "<s>", "pad_token": "<|none|>"},
                  "added_tokens.json": {"<|user|>": 320}},
    "another pad": {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|user|>",
                                              "additional_special_tokens": ["<|a|>"]}},
}


def theirs(path: Path) -> Any:
    import transformers
    if path.is_dir():
        return transformers.AutoTokenizer.from_pretrained(path)
    return transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


def agree(path: Path, texts: tuple[str, ...]) -> Source:
    found, tokenizer = read_source(path), theirs(path)
    for text in texts:
        for special in (True, False):
            got = found.tokenizer.encode(text, add_special_tokens=special).ids
            assert got == tokenizer(text, add_special_tokens=special).input_ids, text
        # Not their decode(): it may take spaces away, which is their tokenizer's own affair.
        assert found.tokenizer.decode(got, skip_special_tokens=False) == tokenizer.backend_tokenizer.decode(
            got, skip_special_tokens=False), text
    return found


@pytest.mark.parametrize("label", FOLDERS)
def test_folders(label: str, tmp_path: Path) -> None:
    agree(folder_with(tmp_path / "model", FOLDERS[label]), (*TEXTS, "<|none|> <|a|>", "  <|user|>  a"))


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2"])
def test_byte_level_files(pre: str, tmp_path: Path) -> None:
    """But for characters that are not composed, which Qwen's tokenizer composes and its GGUF files do not tell."""
    texts = tuple(text for text in TEXTS if (pre, text) != ("qwen2", "é e\u0301"))
    agree(gguf_with(tmp_path / "model.gguf", text_keys(pre, add_bos_token=False)), texts)


@pytest.mark.parametrize("prefixed", [True, False])
def test_pieces(prefixed: bool, tmp_path: Path) -> None:
    keys = sentencepiece() | ({} if prefixed else {"tokenizer.ggml.add_bos_token": False})
    agree(gguf_with(tmp_path / "model.gguf", keys), TEXTS)


def test_smollm2() -> None:
    texts = tuple(text for text in TEXTS if text != NUMERALS)
    found = agree(published_file("smollm2"), (*texts, "<|im_start|>user\nHi<|im_end|>\n"))
    tokenizer = theirs(published_file("smollm2"))
    assert found.chat is not None
    assert found.chat.template == tokenizer.chat_template
    assert {name: value for name, value in tokenizer.special_tokens_map.items()
            if isinstance(value, str)} == dict(found.chat.tokens)


@pytest.mark.parametrize(("generation", "config"), [
    ({"eos_token_id": [1, 293]}, 1), ({"eos_token_id": "second"}, None), ({"eos_token_id": [339, "third"]}, "first"),
    ({}, "second"), ({"eos_token_id": None}, "second"), (None, "second"), (None, ["third", 5])], ids=str)
def test_where_texts_end(generation: Any, config: Any, tmp_path: Path) -> None:
    """generate() of theirs stops at the same token; greedy, float. Words stand for tokens that come."""
    import torch
    import transformers
    plain = read_source(folder_with(tmp_path / "plain", eos_token_id=None))
    step = dict(zip(("first", "second", "third"), _greedy(plain, 3)))

    def known(value: Any) -> Any:
        return [known(one) for one in value] if isinstance(value, list) else step.get(value, value)

    files = {} if generation is None else {"generation_config.json": {key: known(value)
                                                                      for key, value in generation.items()}}
    folder = folder_with(tmp_path / "model", files, eos_token_id=known(config))
    found = read_source(folder)
    prompt = found.tokenizer.encode("the boat").ids
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        out = model.generate(torch.tensor([prompt]), max_new_tokens=30, do_sample=False)
    assert _greedy(found, 30) == out[0, len(prompt):].tolist()


def _greedy(found: Source, most: int) -> list[int]:
    """Tokens behind "the boat"."""
    prompt = found.tokenizer.encode("the boat").ids
    interpreter, cache = FloatInterpreter(found.network), Cache(found.network.graph)
    step, new = interpreter.forward(Rows.chain(prompt), cache)[-1], []
    while len(new) < most:
        new.append(int(np.argmax(step)))
        if new[-1] in found.ends:
            break
        step = interpreter.forward(Rows.chain([new[-1]], len(prompt) + len(new) - 1), cache)[-1]
    return new
