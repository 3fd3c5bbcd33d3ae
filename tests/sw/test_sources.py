"""What stands beside config.json is applied as transformers does, told, or refused by name in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from gemmule.compiler import CompileError
from gemmule.sw.errors import InputError
from gemmule.sw.models.sources import Source, read_source

from .checkpoints import VOCAB, byte_level, folder_with

USER = {"content": "<|user|>", "special": True, "lstrip": False, "rstrip": False, "normalized": False,
        "single_word": False}


def source(tmp_path: Path, files: dict[str, Any] | None = None, **keys: Any) -> Source:
    return read_source(folder_with(tmp_path / "model", files, **keys))


def ids(found: Source, text: str) -> list[int]:
    """Tokens of a prompt, from the text that a model file keeps."""
    kept = Tokenizer.from_str(found.tokenizer_json)
    assert kept.encode(text).ids == found.tokenizer.encode(text).ids
    return list(kept.encode(text).ids)


def refused(tmp_path: Path, files: dict[str, Any], says: str, **keys: Any) -> None:
    with pytest.raises((InputError, CompileError)) as error:
        source(tmp_path, files, **keys)
    text = str(error.value)
    assert says in text
    assert "\n" not in text
    assert str(tmp_path) in text


def test_nothing_beside(tmp_path: Path) -> None:
    found = source(tmp_path)
    assert (found.ends, found.bos, found.notes, found.chat, found.labels) == ((1,), (), (), None, ())
    assert found.tokenizer_json == (tmp_path / "model" / "tokenizer.json").read_text()


def test_ends_of_generation(tmp_path: Path) -> None:
    """Those of generation_config.json, where it names some."""
    found = source(tmp_path, {"generation_config.json": {"eos_token_id": [1, 293], "do_sample": True, "top_p": 0.9}})
    assert found.ends == (1, 293)
    assert found.notes == (
        "generation_config.json: texts end at 1, 293, where config.json has 1",
        "generation_config.json: its makers sample with do_sample true, top_p 0.9; options decide here")
    assert source(tmp_path, {"generation_config.json": {"eos_token_id": 7}}).ends == (7,)
    found = source(tmp_path, {"generation_config.json": {"pad_token_id": 7}})
    assert found.ends == ()  # as in transformers
    assert found.notes == ("generation_config.json: texts end at no token, where config.json has 1",)
    assert source(tmp_path, {"generation_config.json": {"eos_token_id": 1}}).notes == ()
    assert source(tmp_path, {"generation_config.json": {"eos_token_id": [3, 3]}}, eos_token_id=None).ends == (3,)


def test_an_added_token(tmp_path: Path) -> None:
    """Of tokenizer_config.json alone: one token, not its characters."""
    plain = ids(source(tmp_path), "<|user|>the boat")
    found = source(tmp_path, {"tokenizer_config.json": {"added_tokens_decoder": {"320": USER}}})
    assert ids(found, "<|user|>the boat") == [320, *ids(found, "the boat")]
    assert 320 not in plain
    assert found.notes == ("tokens added to those of tokenizer.json: '<|user|>' (320)",)
    old = source(tmp_path, {"added_tokens.json": {"<|user|>": 320, "<x>": 321}, "tokenizer_config.json": {}})
    assert ids(old, "<x><|user|>") == [321, 320]
    assert old.tokenizer.decode([321, 320]) == "<x><|user|>"


def test_flags(tmp_path: Path) -> None:
    """The config decides how a token is found, and whether it is special."""
    found = source(tmp_path, {"tokenizer_config.json": {"added_tokens_decoder": {
        "320": USER | {"rstrip": True, "special": False}, "2": {"content": "<pad>", "special": False}}}})
    assert ids(found, "<|user|>   a") == [320, *ids(found, "a")]
    assert found.tokenizer.decode([2, 320]) == "<pad><|user|>"


def test_special_tokens_that_are_named(tmp_path: Path) -> None:
    """The next id, while the model has a row for it; older files name them apart."""
    found = source(tmp_path, {"special_tokens_map.json": {"pad_token": "<none>", "bos_token": {"content": "<s>"}},
                              "tokenizer_config.json": {"chat_template": "x", "eos_token": "</s>"}})
    assert ids(found, "<none>") == [320]
    assert found.chat is not None
    assert found.chat.tokens == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<none>"}
    found = source(tmp_path, {"special_tokens_map.json": {"pad_token": "<none>"}, "tokenizer_config.json": {
        "added_tokens_decoder": {}, "pad_token": "<pad>"}})
    assert 320 not in ids(found, "<none>")
    assert found.notes == ("special_tokens_map.json: pad_token not read: tokenizer_config.json has its own",)
    full = {f"<{number}>": number for number in range(320, VOCAB)}
    found = source(tmp_path, {"tokenizer_config.json": {"pad_token": "<none>"}, "added_tokens.json": full})
    assert "the special token '<none>' has no id and the model no row for it: left out" in found.notes


def test_bos_and_eos_around_a_text(tmp_path: Path) -> None:
    """That of tokenizer.json, as in transformers 5; a config that says otherwise is told."""
    template = byte_level() | {"post_processor": {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                 {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}}
    words = {"bos_token": "<s>", "eos_token": "</s>"}
    for flags, tokenizer, bos, told in (
            ({"add_bos_token": True}, template, (0,), []), ({"add_bos_token": False}, None, (), []),
            ({}, template, (0,), []), ({"add_bos_token": False}, template, (0,), ["add_bos_token = false"]),
            ({"add_bos_token": True, "add_eos_token": True}, None, (),
             ["add_bos_token = true", "add_eos_token = true"])):
        found = source(tmp_path, {"tokenizer_config.json": words | flags}, tokenizer=tokenizer)
        assert found.bos == bos
        assert len(found.notes) == len(told)
        for note, flag in zip(found.notes, told):
            assert note == (f"tokenizer_config.json: {flag} is not applied: what stands around a text is in "
                            "tokenizer.json")


def test_chat_templates(tmp_path: Path) -> None:
    """A file of its own, then the config's, then the older file."""
    config = {"tokenizer_config.json": {"chat_template": "of the config", "eos_token": "</s>"}}
    old = {"chat_template.json": {"chat_template": "of JSON"}}
    folder = tmp_path / "model"

    def template(files: dict[str, Any]) -> str | None:
        for path in folder.glob("*") if folder.exists() else ():
            path.unlink()
        found = source(tmp_path, files)
        return found.chat and found.chat.template

    assert template(config | old | {"chat_template.jinja": "{{ messages }}\n"}) == "{{ messages }}\n"
    assert template(config | old) == "of the config"
    assert template(old) == "of JSON"
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    assert template({"tokenizer_config.json": {"chat_template": several}}) == "yes"
    assert template({"tokenizer_config.json": {"chat_template": several[:1]}}) is None


def test_spaces_of_old_tokenizers(tmp_path: Path) -> None:
    found = source(tmp_path, {"tokenizer_config.json": {"clean_up_tokenization_spaces": True}})
    assert found.notes == (
        "tokenizer_config.json: clean_up_tokenization_spaces is not applied: text keeps its spaces",)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "adapter": ({"adapter_config.json": {}}, "holds an adapter (adapter_config.json): merge it into its model first"),
    "another id": ({"tokenizer_config.json": {"added_tokens_decoder": {"321": {"content": "<pad>"}}}},
                   "tokenizer_config.json gives '<pad>' the id 321, tokenizer.json 2: keep one"),
    "taken": ({"added_tokens.json": {"<|user|>": 2}},
              "added_tokens.json gives the id 2 to '<|user|>', tokenizer.json to '<pad>': keep one"),
    "gap": ({"added_tokens.json": {"<|user|>": 325}},
            "added_tokens.json must give '<|user|>' the next free id, 320, not 325: tokens before it are missing"),
    "twice": ({"tokenizer_config.json": {"added_tokens_decoder": {"320": USER, "321": USER}}},
              "must give '<|user|>' the next free id, 320, not 321"),
    "beyond": ({"added_tokens.json": {"<|user|>": 340}},
               "added_tokens.json must give ids below the model's 340 tokens, not 340 to '<|user|>'"),
    "two files": ({"added_tokens.json": {"<a>": 320}, "tokenizer_config.json": {
        "added_tokens_decoder": {"320": USER}}}, "must give '<a>' the next free id, 321, not 320"),
    "no id": ({"tokenizer_config.json": {"added_tokens_decoder": {"x": USER}}},
              "tokenizer_config.json: added_tokens_decoder.x.[key]"),
    "flag": ({"tokenizer_config.json": {"add_bos_token": "yes"}}, "add_bos_token must be true or false, not 'yes'"),
    "split": ({"tokenizer_config.json": {"split_special_tokens": True}}, "split_special_tokens must be false"),
    "token": ({"tokenizer_config.json": {"eos_token": 5}}, "eos_token must hold fields of its own, not 5"),
    "ids as text": ({"added_tokens.json": {"<a>": "320"}}, "must be an integer, not '320'"),
    "list": ({"added_tokens.json": []}, "added_tokens.json: must hold a JSON object, not []"),
    "JSON": ({"generation_config.json": "{'a': 1}"}, "generation_config.json:1: is not JSON"),
    "NaN": ({"generation_config.json": '{"temperature": NaN}'}, "numbers must be finite, not NaN"),
    "ends": ({"generation_config.json": {"eos_token_id": [1, 340]}}, "eos_token_id must be tokens from 0 to 339"),
    "ends as text": ({"generation_config.json": {"eos_token_id": "1"}}, "eos_token_id"),
    "sampling": ({"generation_config.json": {"temperature": "hot"}}, "temperature must be a number, not 'hot'"),
    "huge": ({"tokenizer_config.json": b" " * ((1 << 24) + 1)}, "must hold at most 16,777,216 bytes"),
    "template": ({"chat_template.jinja": b"\xff"}, "chat_template.jinja is not UTF-8 text at byte 0"),
    "old template": ({"chat_template.json": {}}, "chat_template.json: chat_template is missing"),
    "tokenizer": ({"tokenizer.json": b"\xff"}, "tokenizer.json is not UTF-8 text at byte 0"),
}


@pytest.mark.parametrize("label", REFUSED)
def test_refused(label: str, tmp_path: Path) -> None:
    files, says = REFUSED[label]
    refused(tmp_path, files, says)


def test_no_such_source(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"has no config.json: give a directory"):
        read_source(tmp_path / "none")
