"""The tokenizer of a Hugging Face folder with the tokens that its other files add."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from gemmule.io.reading import named, shown
from gemmule.sw.errors import InputError
from gemmule.sw.models.beside import AddedTokens, Named, SpecialTokens, TokenizerConfig, added_token, read_beside

__all__ = ["apply_beside"]

DECODER, ADDED = "tokenizer_config.json", "added_tokens.json"
"""Files that give ids to tokens."""


def apply_beside(tokenizer: Tokenizer, folder: Path, vocab: int) -> tuple[TokenizerConfig, list[str]]:
    """Apply ``tokenizer_config.json``, ``special_tokens_map.json`` and ``added_tokens.json`` to a tokenizer.

    As transformers 5 does: tokens that ``tokenizer.json`` lacks are added at their ids, flags of added tokens are
    those of the config, what stands around a text is that of ``tokenizer.json``. A config with
    ``added_tokens_decoder`` is of a version that writes all there; names of ``special_tokens_map.json`` count only
    beside older ones.

    Returns:
        The config with the special tokens that count, and notes.

    Raises:
        InputError: a file is damaged, or contradicts ``tokenizer.json``.
    """
    config = read_beside(folder, "tokenizer_config.json", TokenizerConfig) or TokenizerConfig()
    special = read_beside(folder, "special_tokens_map.json", SpecialTokens)
    added = read_beside(folder, "added_tokens.json", AddedTokens) or AddedTokens()
    notes: list[str] = []
    if special is not None:
        told = {name: value for name in SpecialTokens.model_fields if (value := getattr(special, name)) is not None}
        if config.added_tokens_decoder is None:
            config = config.model_copy(update=told)
        elif other := [name for name, value in told.items() if isinstance(value, Named)
                       and value.content != getattr(getattr(config, name), "content", None)]:
            notes.append(f"special_tokens_map.json: {', '.join(other)} not read: tokenizer_config.json has its own")
    words = {token.content for token in config.every()}
    given = [(int(number), token, DECODER) for number, token in (config.added_tokens_decoder or {}).items()]
    known = {token.content for _, token, _ in given}
    given += [(number, Named(content=content, special=content in words), ADDED)
              for content, number in added.tokens.items() if content not in known]
    if new := _add(tokenizer, folder, vocab, sorted(given, key=lambda one: one[0])):
        notes.append(f"tokens added to those of tokenizer.json: {_some(new)}")
    notes += _add_named(tokenizer, vocab, config.every())
    notes += _around(tokenizer, config)
    if config.clean_up_tokenization_spaces:
        notes.append("tokenizer_config.json: clean_up_tokenization_spaces is not applied: text keeps its spaces")
    return config, notes


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _add(tokenizer: Tokenizer, folder: Path, vocab: int, given: list[tuple[int, Named, str]]) -> list[str]:
    """Add tokens at their ids, or their flags to those of the tokenizer; the names of new ones."""
    new = []
    for number, token, where in given:
        there, taken = tokenizer.token_to_id(token.content), tokenizer.id_to_token(number)
        if there not in (None, number):
            raise InputError(f"{named(folder / where)} gives {shown(token.content)} the id {number:,}, tokenizer.json "
                             f"{there:,}: keep one")
        if there is None and taken is not None:
            raise InputError(f"{named(folder / where)} gives the id {number:,} to {shown(token.content)}, "
                             f"tokenizer.json to {shown(taken)}: keep one")
        if number >= vocab:
            raise InputError(f"{named(folder / where)} must give ids below the model's {vocab:,} tokens, not "
                             f"{number:,} to {shown(token.content)}: it belongs to another model")
        if there is None:
            new.append(f"{shown(token.content)} ({number:,})")
    tokenizer.add_tokens([added_token(token) for _, token, _ in given])
    for number, token, where in given:
        if (got := tokenizer.token_to_id(token.content)) != number:
            raise InputError(f"{named(folder / where)} must give {shown(token.content)} the next free id, {got:,}, not "
                             f"{number:,}: tokens before it are missing, or it stands there twice")
    return new


def _add_named(tokenizer: Tokenizer, vocab: int, tokens: list[Named]) -> list[str]:
    """Special tokens that are named and have no id yet get the next one, while the model has some; notes."""
    notes, added = [], tokenizer.get_added_tokens_decoder()
    for token in {token.content: token for token in tokens}.values():
        there = tokenizer.token_to_id(token.content)
        if there is None and tokenizer.get_vocab_size() >= vocab:
            notes.append(f"the special token {shown(token.content)} has no id and the model no row for it: left out")
        elif there is None or there not in added:
            tokenizer.add_tokens([added_token(token)])
    return notes


def _around(tokenizer: Tokenizer, config: TokenizerConfig) -> list[str]:
    """Notes of what the config says of bos and eos where ``tokenizer.json`` does otherwise."""
    notes, around = [], tokenizer.encode("").ids
    for name, wanted in (("bos_token", config.add_bos_token), ("eos_token", config.add_eos_token)):
        token: Named | None = getattr(config, name)
        if token is not None and wanted is not None and wanted != (tokenizer.token_to_id(token.content) in around):
            notes.append(f"{DECODER}: add_{name} = {shown(wanted)} is not applied: what stands around a text is in "
                         "tokenizer.json")
    return notes
