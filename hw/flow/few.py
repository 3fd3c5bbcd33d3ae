"""Some of the mutants, in a file of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from gemmule.hw.flow import leaps as leaping
from gemmule.hw.flow.mutate import NETLIST, POWERED, Mutants, build_in
from gemmule.hw.flow.synth import WHEELS
from gemmule.hw.flow.tools import Progress, Tools
from gemmule.hw.flow.verilog import TOP

__all__ = ["some_of"]


def some_of(mutants: Mutants, numbers: Collection[int], *, leaps: bool = False, tools: Tools = WHEELS,
            progress: Progress = lambda step: None) -> Path:
    """The file with these of the mutants alone, by the same numbers: with few of them the simulator is faster.

    Parameters
    ----------
    leaps: counts can leap (:mod:`gemmule.hw.flow.leaps`).

    Raises:
        SynthError: Yosys is missing or failed, or with ``leaps`` there are no such counts.
    """
    kept = [mutant for mutant in mutants.mutants if mutant.number in numbers]
    if not leaps and len(kept) in (0, len(mutants.mutants)):
        return mutants.verilog
    every, root = mutants.verilog.read_text(), mutants.verilog.parent
    source = Path(leaping.__file__).read_text() if leaps else ""
    name = hashlib.sha256(f"{every}{sorted(numbers)}{source}".encode()).hexdigest()
    verilog = mutants.verilog.with_name(f"some_{name[:16]}.sv")
    if not verilog.is_file():
        wrapper, read = every[every.rindex(f"module {TOP} ("):], POWERED
        if leaps:
            (root / "json.ys").write_text(f"{POWERED}\nwrite_json powered.json\n")
            tools.run("yosys", ["-q", "-l", "yosys.log", "json.ys"], root, "yosys.log", progress)
            (root / "leaping.json").write_text(leaping.leaping((root / "powered.json").read_text()))
            wrapper, read = leaping.wrapped(wrapper, NETLIST), "read_json leaping.json"
        build_in(kept, len(mutants.mutants).bit_length(), wrapper, verilog, tools, progress, read)
    return verilog
