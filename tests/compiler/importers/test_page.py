"""docs/import.md names every key that is used or must have one value; what it shows is what comes out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.importers import FAMILIES, load_network
from gemmule.compiler.importers.config import Keys
from gemmule.compiler.importers.gguf.file import BLOCKS
from gemmule.compiler.importers.gguf.names import ARCHITECTURES
from gemmule.sw.models.gguf_tokenizer import SPLITS

from ..families import make, write
from .test_config import RECORDS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "import.md").read_text()


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_every_key_is_named(record: type[Keys]) -> None:
    missing = [field.alias or name for name, field in record.model_fields.items()
               if f"`{field.alias or name}`" not in PAGE]
    assert not missing


def test_every_family_and_class_is_named() -> None:
    for family in FAMILIES:
        for name in (*family.model_types, *family.architectures):
            assert f"`{name}`" in PAGE


def test_all_of_gguf_is_named() -> None:
    for name in (*ARCHITECTURES, *SPLITS):
        assert f"`{name}`" in PAGE
    for name in BLOCKS:
        assert re.search(rf"\b{name}\b", PAGE)


def test_the_listing_is_a_real_one() -> None:
    (shown,) = re.findall(r"```\n(llama: .*?)```", PAGE, re.S)
    golden = ROOT / "tests" / "compiler" / "ir" / "mistral.txt"
    assert golden.read_text().startswith(shown)


def test_the_messages_are_real_ones(tmp_path: Path) -> None:
    (lines,) = re.findall(r"```\n(model/.*?)```", PAGE, re.S)

    def config(**keys: Any) -> None:
        made = make("llama", layers=1, vocab=8)
        made.config |= keys
        write(tmp_path / "model", made)

    def norm() -> None:
        made = make("llama", layers=1, vocab=8)
        del made.tensors["model.norm.weight"]
        write(tmp_path / "model", made)

    def shard() -> None:
        (tmp_path / "model" / "model.safetensors").unlink()
        write(tmp_path / "model", make("llama", layers=1, vocab=8), shards=3)
        (tmp_path / "model" / "model-00002-of-00003.safetensors").unlink()

    changes = (lambda: config(head_dim=5), lambda: config(sliding_window=4096), norm, shard)
    for change, line in zip(changes, lines.splitlines(), strict=True):
        change()
        with pytest.raises(CompileError) as caught:
            load_network(tmp_path / "model")
        assert str(caught.value).replace(f"{tmp_path}/", "") == line
