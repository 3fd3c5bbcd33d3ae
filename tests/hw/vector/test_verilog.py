"""Vector unit as Verilog, alone: the same text every time, clean under lint."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.hw.flow.export import export
from gemmule.hw.flow.lint import lint


@pytest.mark.long  # of tiny hw/flow/test_verilog.py looks at the same
@pytest.mark.parametrize("name", ["tiny", "base"])
def test_unit_alone_is_clean(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    first, second = (export(config, tmp_path / place, unit="vector").files[0] for place in "ab")
    assert first.read_text() == second.read_text()
    lint(first, "vector")
