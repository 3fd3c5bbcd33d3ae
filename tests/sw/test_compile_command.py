"""`gemmule compile`: the program that runs, and every pass of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.files.model_file import Made, save_model
from gemmule.compiler.passes.pipeline import PASSES as PIPELINE
from gemmule.config import load_config
from tests.compiler.integer_networks import Sizes, random_network

from .test_cli import run

ROOT = Path(__file__).parents[2]
MADE = Made(version="1", bits=8, group=0, method="nearest", smooth=False, seed=1, calibration_sha256="0")
SIZES = Sizes(family="gpt2", hidden=48, inner=100, heads=2, kv_heads=2, head_dim=24, layers=3, vocab=100,
              positions=2048)
PASSES = ["graph", "fuse", "map", "lower", "schedule", "allocate", "emit", "waits"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_model(path, random_network(SIZES, 1), MADE, None)
    return path


def test_every_pass_is_listed(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    image, numbers = file.parent / "image.bin", file.parent / "numbers.json"
    assert run(monkeypatch, "compile", str(file), "--config", "edge", "--rows", "3", "--logits", "--dump-passes",
               "--save-image", str(image), "--json", str(numbers)) == 0
    program = compile_network(random_network(SIZES, 1), load_config("edge"), rows=3)
    assert image.read_bytes() == program.image
    parts = {part.partition("\n")[0]: part.partition("\n")[2] for part in capsys.readouterr().out.split("== ")[1:]}
    assert list(parts) == PASSES
    waits = [line for line in parts["waits"].splitlines() if line[:5].strip().isdigit()]
    assert len(waits) == len(program.commands) == json.loads(numbers.read_text())["commands"]
    assert "2.up" in parts["graph"]
    assert "inner      layers.2.up, layers.2." in parts["fuse"]
    assert "repeat 3" in parts["schedule"]
    assert "waits" in parts["waits"]
    assert "waits" not in parts["emit"]


def test_the_page_shows_real_listings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The page walks through the list of passes, with the output of the command that it names."""
    page = (ROOT / "docs" / "compiler.md").read_text("utf-8")
    section = page.partition("## One layer, pass by pass")[2].partition("\n## ")[0]
    assert re.findall(r"^\*\*(\w+)\*\* ", section, re.M) == [step.name for step in PIPELINE]
    command = next(line for line in section.splitlines() if line.startswith("    $ gemmule "))
    monkeypatch.chdir(ROOT)
    assert run(monkeypatch, *command.split()[2:]) == 0
    real = capsys.readouterr().out
    shown = [line.strip() for block in section.split("```")[1::2] for line in block.splitlines() if line.strip()]
    assert len(shown) > 25
    for line in shown:
        assert re.search(r"^ *" + ".*".join(map(re.escape, line.split("..."))), real, re.M), line


def test_explains_what_was_tried(file: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    numbers = file.parent / "numbers.json"
    assert run(monkeypatch, "compile", str(file), "--config", "tiny", "--explain", "--context", "40", "--json",
               str(numbers)) == 0
    record, shown = json.loads(numbers.read_text()), " ".join(capsys.readouterr().out.split())
    assert record["tried"]
    assert all(lost["why"] for lost in record["tried"])
    assert f"takes the first that fits, number {len(record['tried']) + 1}: rows 1" in shown
    assert record["mapping"]["attention.context"] == record["context"] == 40


@pytest.mark.parametrize(("options", "message"), [
    (("--context", "0"), "--context must be from 1 to"), (("--context", "9999"), "--context must be from 1 to"),
    (("--rows", "-3"), "at least 1, not -3"), (("--rows", "9999"), "use fewer rows"),
])
def test_refuses(file: Path, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch,
                 capsys: pytest.CaptureFixture[str]) -> None:
    image = file.parent / "image.bin"
    assert run(monkeypatch, "compile", str(file), "--save-image", str(image), *options) == 2
    assert message in capsys.readouterr().err
    assert not image.exists()
