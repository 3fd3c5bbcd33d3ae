"""The tutorial's code runs as printed, and its claims hold (it asserts them)."""

import runpy
from pathlib import Path


def test_tutorial(capsys) -> None:
    module = runpy.run_path(str(Path(__file__).resolve().parents[1] / "examples" / "tutorial.py"))
    assert len(module["blocks"]()) >= 6
    module["main"]()
    assert "faster" in capsys.readouterr().out
