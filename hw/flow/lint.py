"""Lint of generated Verilog: Verilator with all warnings and the committed waivers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gemmule.hw.flow import verilator

__all__ = ["WAIVERS", "LintError", "lint"]

WAIVERS = Path(__file__).resolve().parent / "lint.vlt"


class LintError(RuntimeError):
    """Verilator warned or failed; the message holds its first lines."""


def lint(path: Path | str, top: str = "gemmule") -> None:
    """Check one file.

    Raises:
        LintError: any warning that no waiver covers.
    """
    root = str(verilator.root())
    done = subprocess.run(
        [*verilator.command(root), "--lint-only", "-Wall", "--top-module", top, str(WAIVERS), str(path)],
        capture_output=True, text=True, check=False, env=os.environ | {"VERILATOR_ROOT": root})
    text = done.stdout + done.stderr
    if done.returncode or "%Warning" in text:
        raise LintError(f"lint of {path}:\n" + "\n".join(text.splitlines()[:20]))
