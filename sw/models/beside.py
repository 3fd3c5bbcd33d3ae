"""What stands beside ``config.json`` in a Hugging Face folder: how generation ends, how text becomes tokens.

Each file is a record of the keys that matter here; what transformers reads and this toolkit does not apply is told.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from tokenizers import AddedToken

from gemmule.compiler.files.chat import Chat
from gemmule.io.fields import first_problem
from gemmule.io.reading import ReadError, named, read_json, read_regular, shown
from gemmule.sw.errors import InputError

__all__ = ["AddedTokens", "Generation", "Named", "SpecialTokens", "TokenizerConfig", "added_token", "chat_of",
           "generation_of", "read_beside"]

MOST_BYTES = 1 << 24
"""Of one of these files."""
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")
"""Tokens that chat templates may name."""
R = TypeVar("R", bound=BaseModel)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Named(_Record):
    """A token and how it is found in text."""

    content: Annotated[str, Field(min_length=1)]
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None
    """None: where the token is not special."""
    special: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        """The name alone stands for a special token."""
        return {"content": value, "special": True} if isinstance(value, str) else value


class SpecialTokens(_Record):
    """``special_tokens_map.json``, and the keys of it that ``tokenizer_config.json`` has too."""

    bos_token: Named | None = None
    eos_token: Named | None = None
    unk_token: Named | None = None
    pad_token: Named | None = None
    sep_token: Named | None = None
    cls_token: Named | None = None
    mask_token: Named | None = None
    additional_special_tokens: list[Named] | None = None
    extra_special_tokens: list[Named] | dict[str, Named] | None = None

    def every(self) -> list[Named]:
        """All of them, special."""
        found: list[Named] = []
        for name in SpecialTokens.model_fields:
            value = getattr(self, name)
            found += ([value] if isinstance(value, Named) else
                      list(value.values()) if isinstance(value, dict) else value or [])
        return [token.model_copy(update={"special": True}) for token in found]


class _Template(_Record):
    name: str
    template: str


class TokenizerConfig(SpecialTokens):
    """``tokenizer_config.json``."""

    added_tokens_decoder: dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Named] | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    clean_up_tokenization_spaces: bool | None = None
    split_special_tokens: bool | None = None
    chat_template: str | list[_Template] | None = None

    @model_validator(mode="after")
    def _check(self) -> TokenizerConfig:
        if self.split_special_tokens:
            raise ValueError("split_special_tokens must be false, not true: special tokens are found in text")
        return self


class AddedTokens(_Record):
    """``added_tokens.json``: ids by token."""

    tokens: dict[Annotated[str, Field(min_length=1)], Annotated[int, Field(ge=0, lt=1 << 30)]] = {}

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, value: object) -> object:
        """The file is the field."""
        return {"tokens": value}


class Generation(_Record):
    """``generation_config.json``: what ends a text, and how its makers sample."""

    eos_token_id: int | list[int] | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


class _ChatFile(_Record):
    """``chat_template.json``."""

    chat_template: str


def read_beside(folder: Path, name: str, record: type[R]) -> R | None:
    """A JSON file of a folder as its record; None where there is none.

    Raises:
        InputError: it cannot be read, or a key that matters has the wrong type.
    """
    path = folder / name
    if not path.exists():
        return None
    try:
        return record.model_validate(read_json(path, MOST_BYTES))
    except ReadError as error:
        raise InputError(f"{named(path, error.line)}: {error}") from None
    except ValidationError as error:
        raise InputError(f"{named(path)}: {first_problem(error, record)[1]}") from None


def generation_of(folder: Path, vocab: int, ends: tuple[int, ...]) -> tuple[tuple[int, ...], list[str]]:
    """(tokens that end a text, notes): those of ``generation_config.json`` where there is one, else ``ends``.

    A file that names none ends no text, as in transformers.

    Raises:
        InputError: the file is not one, or names no tokens.
    """
    at = folder / "generation_config.json"
    found = read_beside(folder, at.name, Generation)
    if found is None:
        return ends, []
    notes, told = [], found.eos_token_id
    listed = () if told is None else tuple(dict.fromkeys([told] if isinstance(told, int) else told))
    for token in listed:
        if not 0 <= token < vocab:
            raise InputError(f"{named(at)}: eos_token_id must be tokens from 0 to {vocab - 1}, not {shown(told)}")
    if set(listed) != set(ends):
        notes.append(f"{at.name}: texts end at {_list(listed)}, where config.json has {_list(ends)}")
    if sampled := {key: value for key, value in found.model_dump(exclude={"eos_token_id"}).items()
                   if value is not None}:
        notes.append(f"{at.name}: its makers sample with "
                     + ", ".join(f"{key} {shown(value)}" for key, value in sampled.items()) + "; options decide here")
    return listed, notes


def _list(tokens: tuple[int, ...]) -> str:
    return ", ".join(map(str, tokens[:8])) + (", .." if len(tokens) > 8 else "") if tokens else "no token"


def chat_of(folder: Path, config: TokenizerConfig) -> tuple[Chat | None, list[str]]:
    """(the chat template, notes): of ``chat_template.jinja``, else of ``tokenizer_config.json``, else of
    ``chat_template.json``.

    Raises:
        InputError: a file cannot be read.
    """
    notes: list[str] = []
    file = folder / "chat_template.jinja"
    template: str | None = None
    if file.exists():
        try:
            template = read_regular(file, MOST_BYTES).decode()
        except ReadError as error:
            raise InputError(f"{named(file)} {error}") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{named(file)} is not UTF-8 text at byte {error.start}") from None
    elif isinstance(config.chat_template, list):
        by_name = {one.name: one.template for one in config.chat_template}
        template = by_name.get("default")
        notes.append(f"tokenizer_config.json: of its chat templates {shown(sorted(by_name))} "
                     + ("none is named default: none is used" if template is None else "the default one is used"))
    elif config.chat_template is not None:
        template = config.chat_template
    elif (found := read_beside(folder, "chat_template.json", _ChatFile)) is not None:
        template = found.chat_template
    if template is None:
        return None, notes
    tokens = {name: token.content for name in NAMES if (token := getattr(config, name)) is not None}
    return Chat(template=template, tokens=tokens), notes


def added_token(token: Named) -> AddedToken:
    """The same for a tokenizer."""
    return AddedToken(
        token.content, single_word=token.single_word, lstrip=token.lstrip, rstrip=token.rstrip, special=token.special,
        normalized=not token.special if token.normalized is None else token.normalized)
