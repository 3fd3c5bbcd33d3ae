"""The tokenizer of a GGUF file as a ``tokenizer.json``: byte-level BPE, or SentencePiece's BPE with byte fallback."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gemmule.compiler.files.chat import Chat
from gemmule.io.fields import first_problem
from gemmule.io.reading import shown
from gemmule.sw.errors import InputError

__all__ = ["GgufText", "parse_gguf_text", "tokenizer_text"]

PREFIX, TEMPLATE = "tokenizer.ggml.", "tokenizer.chat_template"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}|{_REST}"
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_DIGITS = {"type": "Digits", "individual_digits": True}


def _split(pattern: str) -> list[dict[str, Any]]:
    """Pieces that a pattern matches, as bytes."""
    return [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            _BYTES | {"use_regex": False}]


_GPT2 = [_BYTES | {"use_regex": True}]
SPLITS: dict[str, list[dict[str, Any]]] = (
    dict.fromkeys(("gpt-2", "default", "phi-2", "olmo"), _GPT2)
    | dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), [_DIGITS, *_GPT2])
    | dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _split(_LLAMA3))
    | dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _split(_QWEN2)))
"""How text is cut before merging, by ``tokenizer.ggml.pre``."""
_WHOLE_FIRST = ("llama-bpe", "llama3", "llama-v3", "falcon3")
"""Those whose pieces are looked up whole before they are merged, and whose prompts begin with bos."""
_COMPOSED = ("qwen2", "deepseek-r1-qwen")
"""Those that compose characters first (NFC)."""
_LONGEST = 256
"""Characters from which on a token of SentencePiece is taken to be made by no merge."""
_SPACE = "\u2581"
"""SentencePiece's space."""


class Kind(IntEnum):
    """What a token is."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


TokenId = Annotated[int, Field(ge=0)]


class GgufText(BaseModel):
    """Metadata of the tokenizer, without ``tokenizer.ggml.``."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    model: Literal["gpt2", "llama"]
    pre: str = "default"
    tokens: Annotated[list[str], Field(min_length=1)]
    token_type: list[int] = []
    scores: list[float] = []
    merges: list[str] = []
    bos_token_id: TokenId | None = None
    eos_token_id: TokenId | None = None
    eot_token_id: TokenId | None = None
    eom_token_id: TokenId | None = None
    unknown_token_id: TokenId | None = None
    padding_token_id: TokenId | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool = False
    add_space_prefix: bool | None = None
    chat_template: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        count = len(self.tokens)
        for name in ("token_type", "scores"):
            if (size := len(getattr(self, name))) not in (0, count):
                raise ValueError(f"{PREFIX}{name} must have as many elements as {PREFIX}tokens, {count:,}, not "
                                 f"{size:,}")
        for name in type(self).model_fields:
            if name.endswith("_token_id") and (value := getattr(self, name)) is not None and value >= count:
                raise ValueError(f"{PREFIX}{name} must be a token from 0 to {count - 1:,}, not {shown(value)}")
        if len(set(self.tokens)) < count:
            raise ValueError(f"{PREFIX}tokens names {shown(_twice(self.tokens))} twice: keep one")
        if self.model == "gpt2" and self.pre not in SPLITS:
            raise ValueError(f"{PREFIX}pre must be one of {', '.join(SPLITS)}, not {shown(self.pre)}")
        if self.model == "llama" and not self.scores:
            raise ValueError(f"{PREFIX}scores is missing, by which pieces are merged")
        return self

    @property
    def add_bos(self) -> bool:
        """Whether prompts begin with bos; where nothing is said, as llama.cpp has it."""
        if self.bos_token_id is None:
            return False
        if self.add_bos_token is None:
            return self.model == "llama" or self.pre in _WHOLE_FIRST
        return self.add_bos_token

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end a text, a turn or a message."""
        found = (self.eos_token_id, self.eot_token_id, self.eom_token_id)
        return tuple(dict.fromkeys(token for token in found if token is not None))

    @property
    def chat(self) -> Chat | None:
        """The template of conversations."""
        if self.chat_template is None:
            return None
        named = {"bos_token": self.bos_token_id, "eos_token": self.eos_token_id, "pad_token": self.padding_token_id,
                 "unk_token": self.unknown_token_id}
        return Chat(template=self.chat_template,
                    tokens={name: self.tokens[token] for name, token in named.items() if token is not None})


def _twice(tokens: list[str]) -> str:
    seen: set[str] = set()
    return next(token for token in tokens if token in seen or seen.add(token))  # type: ignore[func-returns-value]


def parse_gguf_text(metadata: dict[str, Any]) -> GgufText:
    """The metadata of the tokenizer, checked.

    Raises:
        InputError: a key is missing or not what it must be, or asks for what is not supported.
    """
    keys = {key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)}
    if TEMPLATE in metadata:
        keys["chat_template"] = metadata[TEMPLATE]
    try:
        return GgufText.model_validate(keys)
    except ValidationError as error:
        where, text = first_problem(error, GgufText)
        own = where and where != "chat_template"
        raise InputError(f"{PREFIX if own else 'tokenizer.' if where else ''}{text}") from None


def tokenizer_text(keys: GgufText) -> str:
    """``tokenizer.json`` of a file's metadata.

    Raises:
        InputError: its merges are none.
    """
    kinds = keys.token_type or [Kind.NORMAL] * len(keys.tokens)
    special = {Kind.CONTROL, Kind.UNKNOWN} if keys.model == "llama" else {Kind.CONTROL}
    added = [{"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": kind in special}
             for number, (token, kind) in enumerate(zip(keys.tokens, kinds))
             if token and kind in special | {Kind.USER_DEFINED}]
    made = _byte_level(keys) if keys.model == "gpt2" else _sentencepiece(keys)
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
                      | made | {"post_processor": _template(keys)}, ensure_ascii=False)


def _model(keys: GgufText, merges: list[tuple[str, str]], **options: Any) -> dict[str, Any]:
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(keys.tokens)}, "merges": merges} | options


def _byte_level(keys: GgufText) -> dict[str, Any]:
    """BPE over bytes: what GPT-2 has, with another way to cut text."""
    cuts = [part | {"add_prefix_space": bool(keys.add_space_prefix)} if part["type"] == "ByteLevel" else part
            for part in SPLITS[keys.pre]]
    return {
        "normalizer": {"type": "NFC"} if keys.pre in _COMPOSED else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts}, "decoder": _BYTES | {"use_regex": True},
        "model": _model(keys, _merges(keys), ignore_merges=keys.pre in _WHOLE_FIRST)}


def _merges(keys: GgufText) -> list[tuple[str, str]]:
    """Pairs of tokens as the file has them."""
    found = []
    for number, merge in enumerate(keys.merges):
        left, _, right = merge.partition(" ")
        if not left or not right or " " in right:
            raise InputError(f"{PREFIX}merges must be pairs of tokens, not {shown(merge)} (number {number:,})")
        found.append((left, right))
    return found


def _sentencepiece(keys: GgufText) -> dict[str, Any]:
    """BPE over characters, a space as ``▁``; what has no token is spelled in bytes."""
    prefixed = keys.add_space_prefix is not False
    unknown = keys.unknown_token_id
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": _SPACE, "split": False,
                          "prepend_scheme": "first" if prefixed else "never"},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefixed else [])]},
        "model": _model(keys, _merges(keys) or _merges_by_score(keys), fuse_unk=True, byte_fallback=True,
                        unk_token=None if unknown is None else keys.tokens[unknown])}


def _merges_by_score(keys: GgufText) -> list[tuple[str, str]]:
    """Every way in which a token is two others: the highest score first, then the longest left part."""
    numbers = {token: number for number, token in enumerate(keys.tokens)}
    kinds = keys.token_type or [Kind.NORMAL] * len(keys.tokens)
    plain = (Kind.NORMAL, Kind.USER_DEFINED)
    found = []
    for number, token in enumerate(keys.tokens):
        if kinds[number] in plain and len(token) < _LONGEST:
            found += [(-keys.scores[number], -at, at - len(token), number, token[:at], token[at:])
                      for at in range(1, len(token)) if token[:at] in numbers and token[at:] in numbers]
    return [(left, right) for *_, left, right in sorted(found)]


def _template(keys: GgufText) -> dict[str, Any] | None:
    """What stands around a text: bos before it, eos behind it."""
    bos = keys.bos_token_id if keys.add_bos else None
    eos = keys.eos_token_id if keys.add_eos_token else None
    if bos is None and eos is None:
        return None

    def around(text: str, number: int) -> list[dict[str, Any]]:
        return [*([{"SpecialToken": {"id": keys.tokens[bos], "type_id": number}}] if bos is not None else []),
                {"Sequence": {"id": text, "type_id": number}},
                *([{"SpecialToken": {"id": keys.tokens[eos], "type_id": number}}] if eos is not None else [])]

    used = {keys.tokens[token]: {"id": keys.tokens[token], "ids": [token], "tokens": [keys.tokens[token]]}
            for token in (bos, eos) if token is not None}
    return {"type": "TemplateProcessing", "single": around("A", 0), "pair": around("A", 0) + around("B", 1),
            "special_tokens": used}
