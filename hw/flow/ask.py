"""Yosys' ``sat``, asked whether an output never rises."""

from __future__ import annotations

from pathlib import Path

from gemmule.hw.flow.tools import Progress, SynthError, Tools

__all__ = ["never_rises"]

SECONDS = 15
"""For one question."""


def never_rises(output: str, folder: Path, text: str, tools: Tools, progress: Progress) -> bool:
    """Whether this output of a module in Yosys' JSON is 0 whatever its inputs are; False too if that takes too long."""
    (folder / "miter.json").write_text(text)
    (folder / "sat.ys").write_text(
        f"read_json miter.json\nopt_expr\nopt_merge -share_all\nopt_clean\n"
        f"sat -timeout {SECONDS} -verify -prove {output} 0 miter\n")
    try:
        tools.run("yosys", ["-q", "-l", "sat.log", "sat.ys"], folder, "sat.log", progress)
    except SynthError:
        return False
    return True
