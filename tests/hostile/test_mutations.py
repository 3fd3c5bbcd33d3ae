"""Damage drawn at random: every file loads, or is refused in one line that names it; no other exception."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.importers import load_network
from gemmule.config import PRESETS, ConfigError, load_config
from gemmule.sw.models.bundled import FILES, bundled_file
from gemmule.sw.text.byte_level import load_tokenizer

from . import checkpoint_cases
from .runner import MODELS, ROOT

MOST_SIGNS = 600
"""Of a message, the longest path of a test included."""
WORDS = (
    b"{ } [ ] : , - & * ! ? | > % # ' \" \t \n \0 --- ... << ~ &a *a !!int yes 010 1:30 .nan 1e400 -1 0 64 4096 1e9 "
    b"dram null true I32 U8 BF16 \\u \"\" {} []").split(b" ") + [b"9" * 40, b"\xff", b": ", b"  ", b"- "]


def mutated(data: bytes, draw: random.Random, window: int | None = None) -> bytes:
    """One to four changes in the first ``window`` bytes: bits, words put in, pieces cut, repeated or moved."""
    for _ in range(draw.randint(1, 4)):
        limit = min(len(data), window or len(data))
        at, end = sorted(draw.randint(0, limit) for _ in range(2))
        end = min(end, at + draw.choice((1, 8, 200)))
        kind = draw.randrange(6)
        if kind <= 1 and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1:]
        elif kind == 2:
            data = data[:at] + draw.choice(WORDS) + data[at:]
        elif kind == 3:
            data = data[:at] + draw.choice(WORDS) + data[end:]
        elif kind == 4:
            data = data[:at] + data[end:]
        else:
            data = data[:end] + data[at:end] * draw.choice((1, 1, 3)) + data[end:]
    return data


def outcomes(load: Callable[[Path], object], path: Path, original: bytes, count: int, seed: int,
             window: int | None = None, names: str = "") -> tuple[int, int]:
    """(loaded, refused) of ``count`` mutants of a file; a message has ``names``, else the file's name."""
    draw, errors = random.Random(seed), []
    for _ in range(count):
        path.write_bytes(mutated(original, draw, window))
        try:
            load(path)
        except (CompileError, ConfigError, ValueError) as error:
            errors.append(error)
    for error in errors:
        text = str(error)
        assert type(error) in (CompileError, ConfigError, ValueError), repr(error)
        assert (names or path.name) in text, text
        assert text.isprintable(), text
        assert len(text) <= MOST_SIGNS, text
    return count - len(errors), len(errors)


@pytest.mark.parametrize("source", [
    *(ROOT / "gemmule" / "presets" / f"{name}.yaml" for name in PRESETS), ROOT / "examples/configs/slow_dram.yaml",
], ids=lambda path: path.stem)
def test_configurations(tmp_path: Path, source: Path) -> None:
    loaded, refused = outcomes(load_config, tmp_path / "mutant.yaml", source.read_bytes(), 150, 1)
    assert loaded > 5, "some changes are in comments"
    assert refused > 50


@pytest.mark.parametrize(("window", "count"), [(8, 40), (3112, 300), (None, 60)])
def test_quantised_models(tmp_path: Path, window: int | None, count: int) -> None:
    """The header's length, the header, the whole file: there a bit of a weight shows in the manifest's hash alone."""
    original = (MODELS / FILES["draft"]).read_bytes()
    _, refused = outcomes(load_model, tmp_path / "mutant.safetensors", original, count, 2, window)
    assert refused > count // 3


def test_every_byte_counts(tmp_path: Path) -> None:
    """A bundled file of which any one bit differs is refused."""
    (tmp_path / "manifest.json").write_bytes((MODELS / "manifest.json").read_bytes())
    draw = random.Random(3)
    for role, name in FILES.items():
        path, original = tmp_path / name, (MODELS / name).read_bytes()
        path.write_bytes(original)
        assert bundled_file(tmp_path, role) == path
        for at in (0, len(original) - 1, *(draw.randrange(len(original)) for _ in range(5))):
            path.write_bytes(original[:at] + bytes([original[at] ^ 1 << draw.randrange(8)]) + original[at + 1:])
            with pytest.raises(CompileError, match=rf"{name} must have SHA-256"):
                bundled_file(tmp_path, role)


def test_manifests(tmp_path: Path) -> None:
    for name in FILES.values():
        (tmp_path / name).write_bytes((MODELS / name).read_bytes())
    original = (MODELS / "manifest.json").read_bytes()
    _, refused = outcomes(lambda path: bundled_file(path.parent, "draft"), tmp_path / "manifest.json", original, 200, 4)
    assert refused > 100


def test_tokenizers(tmp_path: Path) -> None:
    original = (MODELS / FILES["tokenizer"]).read_bytes()
    _, refused = outcomes(load_tokenizer, tmp_path / "mutant.json", original, 60, 5)
    assert refused > 10
    _, refused = outcomes(load_tokenizer, tmp_path / "mutant.json", original, 100, 6, 1200)
    assert refused > 20


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_checkpoints(tmp_path: Path, name: str) -> None:
    checkpoint_cases.write(tmp_path / "train")
    path = tmp_path / "train" / "draft" / name
    _, refused = outcomes(lambda path: load_network(path.parent), path, path.read_bytes(), 150, 7, 1200,
                          "train/draft/")
    assert refused > 50
