"""Energy of programs by the gates of a device, and the events that its model counts for them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.energy.bus import run_launch
from benchmarks.energy.gates import Gates
from benchmarks.energy.netlist import STEP_NS, Netlist
from gemmule.config import Config
from gemmule.sim.launch import Launch
from gemmule.sim.simulator import Simulator

__all__ = ["CLOCK_MHZ", "Measured", "measure"]

CLOCK_MHZ = 100
"""At which leakage is told by cycle; the slowest path of ``tiny`` takes 8.9 ns."""
SPM, ACC = r"\core.units.scratchpad.", r"\core.units.accumulator."


@dataclass(frozen=True)
class Measured:
    """One program."""

    name: str
    held_out: bool
    cycles: int
    """From the start to the interrupt, with the memory of :mod:`.bus`."""
    dram_bits: tuple[int, int]
    """Read and written."""
    clock_pj: float
    """Clock of all flip-flops, and leakage."""
    logic_pj: float
    """Changes of nets."""
    accesses: dict[str, int]
    """Reads and writes of scratchpad and accumulator, as their macros saw them."""
    others: list[tuple[str, int, int, int]]
    """Of every other memory that was used: its name, bits of a row, reads, writes."""
    latest_ns: float
    """The last change of any net, from the clock edge on."""

    def events(self, counted: dict[str, int]) -> dict[str, int]:
        """What the model counted, with the cycles and bits of DRAM of this run: its memory has other cycles."""
        read, written = self.dram_bits
        return {**counted, "cycle": self.cycles, "dram_read_bit": read, "dram_write_bit": written}


def measure(netlist: Netlist, config: Config, cases: Iterable[tuple[bool, Launch]], kept: Path) -> list[Measured]:
    """Every program; ``kept`` keeps those that are done.

    Raises:
        ValueError: the gates leave other bytes in DRAM than the model.
    """
    done = {one["name"]: one for one in map(json.loads, kept.read_text().splitlines())} if kept.is_file() else {}
    found = []
    for held, case in cases:
        if case.name not in done:
            done[case.name] = asdict(_run(netlist, config, held, case))
            with kept.open("a") as file:
                file.write(json.dumps(done[case.name]) + "\n")
        found.append(Measured(**{**done[case.name], "held_out": held}))
    return found


def _run(netlist: Netlist, config: Config, held: bool, case: Launch) -> Measured:
    model = Simulator(config, dram_bytes=len(case.dram))
    model.load(case)
    model.run()
    device = Gates(netlist)
    cycles, after, (read, written) = run_launch(device, case, config)
    expected = np.frombuffer(model.read_dram(0, len(case.dram)), dtype=np.uint8)
    if not np.array_equal(after, expected):
        raise ValueError(f"{case.name}: {int((after != expected).sum())} bytes differ from the model's")
    logic = float((device.changes[:, 1] * netlist.rise + device.changes[:, 0] * netlist.fall).sum())
    leakage = netlist.leakage_nw / CLOCK_MHZ * 1e-3  # nW times us, in pJ
    accesses = dict.fromkeys(("spm_read", "spm_write", "acc_read", "acc_write"), 0)
    others = []
    for memory, (reads, writes) in zip(netlist.memories, device.used.tolist()):
        part = "spm" if memory.name.startswith(SPM) else "acc" if memory.name.startswith(ACC) else None
        if part:
            accesses[f"{part}_read"] += reads
            accesses[f"{part}_write"] += writes
        elif reads or writes:
            others.append((memory.name, memory.width, reads, writes))
    return Measured(case.name, held, cycles, (read, written), (netlist.clock_pj + leakage) * cycles, logic, accesses,
                    others, device.latest * STEP_NS)
