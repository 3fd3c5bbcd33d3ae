"""Files beside config.json and metadata of tokenizers drawn at random: a source that can encode, or one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmule.compiler import CompileError
from gemmule.sw.errors import InputError
from gemmule.sw.models.sources import read_source

from .checkpoints import VOCAB, folder_with, gguf_with, text_keys

FEW = settings(max_examples=120, deadline=None, derandomize=True,
               suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = st.one_of(st.sampled_from(["<s>", "</s>", "<pad>", "<|user|>", "the", "a", ""]), st.text(max_size=6))
IDS = st.one_of(st.integers(-2, 400), st.sampled_from([1 << 31, 10**30]))
PLAIN = st.one_of(st.none(), st.booleans(), IDS, st.floats(allow_nan=False, allow_infinity=False), WORDS)
FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word", "__type")
NAMED = st.one_of(WORDS, st.fixed_dictionaries({"content": WORDS}, optional=dict.fromkeys(
    FLAGS, st.one_of(st.booleans(), PLAIN))), PLAIN)
SPECIAL = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token", "cls_token"), NAMED) | {
    "additional_special_tokens": st.one_of(st.lists(NAMED, max_size=3), PLAIN),
    "extra_special_tokens": st.one_of(st.dictionaries(WORDS, NAMED, max_size=2), PLAIN)}
FILES = {
    "tokenizer_config.json": st.fixed_dictionaries({}, optional=SPECIAL | {
        "added_tokens_decoder": st.one_of(PLAIN, st.dictionaries(
            st.one_of(st.sampled_from(["320", "321", "2", "-1", "x", "0320"]), WORDS), NAMED, max_size=3)),
        "add_bos_token": st.one_of(st.booleans(), PLAIN), "add_eos_token": st.one_of(st.booleans(), PLAIN),
        "chat_template": st.one_of(WORDS, st.lists(st.fixed_dictionaries(
            {"name": WORDS, "template": WORDS}), max_size=2), PLAIN),
        "clean_up_tokenization_spaces": PLAIN, "split_special_tokens": PLAIN}),
    "special_tokens_map.json": st.fixed_dictionaries({}, optional=SPECIAL),
    "added_tokens.json": st.dictionaries(WORDS, st.one_of(IDS, st.integers(318, 323), PLAIN), max_size=3),
    "generation_config.json": st.fixed_dictionaries({}, optional={
        "eos_token_id": st.one_of(IDS, st.lists(IDS, max_size=3), PLAIN), "temperature": PLAIN, "top_k": PLAIN,
        "do_sample": PLAIN}),
    "chat_template.json": st.one_of(PLAIN, st.fixed_dictionaries({"chat_template": PLAIN})),
    "chat_template.jinja": st.binary(max_size=8),
}
METADATA = st.dictionaries(
    st.sampled_from(["model", "pre", "token_type", "scores", "bos_token_id", "eos_token_id", "unknown_token_id",
                     "add_bos_token", "add_eos_token", "add_space_prefix", "merges", "tokens"]),
    st.one_of(st.none(), st.booleans(), st.integers(0, 400), st.sampled_from(["gpt2", "llama", "qwen2", "smollm"]),
              st.just([0.0] * 321), st.just([6] * 321), st.lists(WORDS, min_size=1, max_size=4)), max_size=4)


def outcome(path: Path) -> None:
    """A source whose parts fit each other; what is wrong with a refusal fails the test."""
    try:
        found = read_source(path)
    except (InputError, CompileError) as error:
        text = str(error)
        assert text.isprintable(), text
        assert len(text) < 700, text
        assert str(path) in text, text
        return
    assert all(0 <= token < VOCAB for token in (*found.ends, *found.bos))
    for note in found.notes:
        assert note.isprintable(), note
    got = found.tokenizer.encode("<s>the boat<|user|>").ids
    assert all(0 <= token < VOCAB for token in got)
    assert isinstance(found.tokenizer.decode(got), str)


@FEW
@given(data=st.data())
def test_folders(data: st.DataObject, tmp_path: Path) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(FILES)), min_size=1, max_size=3, unique=True))
    folder = tmp_path / "model"
    for path in folder.glob("*") if folder.exists() else ():
        path.unlink()
    files: dict[str, Any] = {name: data.draw(FILES[name]) for name in names}
    outcome(folder_with(folder, files))


@FEW
@given(name=st.sampled_from(sorted(FILES)), content=st.binary(max_size=40))
def test_any_bytes(name: str, content: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    for path in folder.glob("*") if folder.exists() else ():
        path.unlink()
    outcome(folder_with(folder, {name: content}))


@FEW
@given(keys=METADATA)
def test_metadata_of_tokenizers(keys: dict[str, Any], tmp_path: Path) -> None:
    outcome(gguf_with(tmp_path / "model.gguf", text_keys(**keys)))
