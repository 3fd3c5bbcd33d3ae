"""Vector unit as Verilog, alone: the same text every time, clean under lint."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.hw.flow.lint import lint
from gemmule.hw.flow.verilog import generate_unit


@pytest.mark.parametrize("name", ["tiny", "base"])
def test_unit_alone_is_clean(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    path = generate_unit("vector", config, tmp_path / "a")
    assert path.read_text() == generate_unit("vector", config, tmp_path / "b").read_text()
    lint(path, "vector")
