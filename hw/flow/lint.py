"""Lint of generated Verilog: Verilator with all warnings and the committed waivers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gemmule.hw.flow import verilator

__all__ = ["WAIVERS", "LintError", "lint"]

WAIVERS = Path(__file__).resolve().parent / "lint.vlt"


class LintError(RuntimeError):
    """Verilator warned or failed; the message holds its first lines."""


def lint(paths: Path | Sequence[Path], top: str = "gemmule") -> None:
    """Check the files of one design.

    Raises:
        LintError: any warning that no waiver covers.
    """
    files = [paths] if isinstance(paths, Path) else paths
    root = str(verilator.root())
    done = subprocess.run(
        [*verilator.command(root), "--lint-only", "-Wall", "--top-module", top, str(WAIVERS), *map(str, files)],
        capture_output=True, text=True, check=False, env=os.environ | {"VERILATOR_ROOT": root})
    text = done.stdout + done.stderr
    if done.returncode or "%Warning" in text:
        raise LintError(f"lint of {files[0]}:\n" + "\n".join(text.splitlines()[:20]))
