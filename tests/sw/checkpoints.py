"""Small checkpoints with a tokenizer: Hugging Face folders and GGUF files, with whatever stands beside."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from ..compiler.families import make, write
from ..compiler.gguf_files import write_gguf

__all__ = ["TEXTS", "VOCAB", "byte_level", "folder_with", "gguf_with", "sentencepiece", "text_keys"]

VOCAB = 340
"""Rows of the model; the tokenizers have 320 tokens."""
TEXTS = (
    "the boat came back", "The year 1984, 12345 and 3.14159e10", "a\n\n\n  b\tc   d \n", "don't WE'LL I'm she's",
    "def f(x):\n    return x**2  # ünï ©\n", "日本語テキスト 한국어 😀👩\u200d👩\u200d👧", "\x00\x1f\xa0x", "x" * 50,
    "<s>the boat</s>", "the <|user|> boat<|user|>", "é e\u0301", "٣٤٥ ½ Ⅷ", "   ", "a")
_TEXT = ["the boat went over the water and came back to the man on the other side of the river"] * 20 + [
    "1234567890 1984 2024 for i in range(10): print(i)"] * 5
_WORDS = ("<s>", "</s>", "<pad>")


@cache
def _trained_bytes() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(_TEXT, trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(_WORDS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return tokenizer.to_str()


def byte_level() -> dict[str, Any]:
    """A ``tokenizer.json`` of 320 byte-level tokens; <s>, </s> and <pad> are the first three."""
    found: dict[str, Any] = json.loads(_trained_bytes())
    return found


@cache
def _trained_pieces() -> tuple[list[str], list[float], list[int]]:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    tokenizer.train_from_iterator(_TEXT, trainers.BpeTrainer(
        vocab_size=320, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>", *(AddedToken(f"<0x{byte:02X}>") for byte in range(256))]))
    found = json.loads(tokenizer.to_str())
    tokens = [token for token, _ in sorted(found["model"]["vocab"].items(), key=lambda one: one[1])]
    made = {"".join(pair): -float(rank) for rank, pair in enumerate(found["model"]["merges"])}
    kinds = [2, 3, 3] + [6] * 256
    return tokens, [made.get(token, -1e4) for token in tokens], kinds + [1] * (len(tokens) - len(kinds))


def sentencepiece() -> dict[str, Any]:
    """Metadata of a GGUF file for pieces with scores and byte fallback."""
    tokens, scores, kinds = _trained_pieces()
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0}


def text_keys(pre: str = "gpt-2", **keys: Any) -> dict[str, Any]:
    """Metadata of a GGUF file for the byte-level tokens; <|user|> is its last one."""
    model = byte_level()["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda one: one[1])] + ["<|user|>"]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 4) + [4],
            "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
            "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.padding_token_id": 2} | {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def gguf_with(path: Path, metadata: dict[str, Any]) -> Path:
    """A small Llama with this metadata beside its own."""
    return write_gguf(path, make("llama", layers=1, vocab=VOCAB), metadata=metadata)


def folder_with(folder: Path, files: dict[str, Any] | None = None, *, tokenizer: dict[str, Any] | None = None,
                **config: Any) -> Path:
    """A small Llama with a tokenizer and these files: text or bytes as they are, else as JSON."""
    write(folder, make("llama", layers=1, vocab=VOCAB, **{"bos_token_id": 0, "eos_token_id": 1} | config))
    for name, content in ({"tokenizer.json": tokenizer or byte_level()} | (files or {})).items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder
