"""Yosys' ``sat``, asked whether an output never rises, and when it does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gemmule.hw.flow.tools import Progress, SynthError, Tools

__all__ = ["counterexample", "never_rises"]

SECONDS = 30
"""For one question, on a clock that runs on while other work has the processor."""


def never_rises(output: str, folder: Path, text: str, tools: Tools, progress: Progress) -> bool:
    """Whether this output of a module in Yosys' JSON is 0 whatever its inputs are; False too if that takes too long."""
    return _answered(f"-verify -prove {output} 0", folder, text, tools, progress)


def counterexample(folder: Path, text: str, shown: Sequence[str], tools: Tools,
                   progress: Progress) -> dict[str, list[bool]] | None:
    """What these outputs, from their lowest bit on, are where output ``wrong`` rises; empty: it never does.

    None if that takes too long, or Yosys fails.
    """
    asked = " ".join(["-prove wrong 0", *(f"-show {name}" for name in shown)])
    if not _answered(asked, folder, text, tools, progress):
        return None
    log = (folder / "sat.log").read_text()
    if re.search(r"no model found: SUCCESS", log):
        return {}
    found = {name: [bit == "1" for bit in reversed(bits)]
             for name, bits in re.findall(r"^\s*\\(\w+)\s.*?\s([01x]+)\s*$", log, re.MULTILINE)}
    return found if re.search(r"model found: FAIL", log) and set(shown) <= found.keys() else None


def _answered(asked: str, folder: Path, text: str, tools: Tools, progress: Progress) -> bool:
    """Whether Yosys ended as it should; what it says is in ``sat.log``."""
    (folder / "miter.json").write_text(text)
    (folder / "sat.ys").write_text(f"read_json miter.json\nopt_expr\nopt_merge -share_all\nopt_clean\n"
                                   f"sat -timeout {SECONDS} {asked} miter\n")
    try:
        tools.run("yosys", ["-q", "-l", "sat.log", "sat.ys"], folder, "sat.log", progress)
    except SynthError:
        return False
    return True
