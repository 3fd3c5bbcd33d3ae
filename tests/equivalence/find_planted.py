"""Find the first programs of ``gemmule fuzz`` that notice each planted fault, after a change of what is drawn.

    python -m tests.equivalence.find_planted

Writes ``planted.json`` (some minutes): by fault the first and the last seed of as many programs as it takes, from seed
2000 on. A fault of the model takes one; some of the RTL need what the programs before left behind.
"""

import json
import tempfile
from pathlib import Path

from gemmule.config import load_config
from gemmule.hw.flow.verilog import generate as generate_verilog
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.launch import Launch
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

from .mutation import mutated
from .planted import MODEL, RTL, planted_rtl, with_choice, with_hulls

TINY = load_config("tiny")
COMMANDS = 300
"""What ``gemmule fuzz`` draws by itself."""
FIRST, MOST = 2000, 200
FOUND = Path(__file__).parent / "planted.json"
DRAM = 1 << 20


def outcome(case: Launch, kind: type[Simulator]) -> tuple[object, bytes]:
    """Cycles of every command and all DRAM bytes."""
    model = kind(TINY, dram_bytes=len(case.dram))
    model.load(case)
    result = model.run()
    return (result.cycles, result.issue.tolist(), result.finish.tolist()), model.read_dram(0, len(case.dram))


def planted_verilog(folder: Path) -> Path:
    """All faults in one device, which takes the number of one, or the hull that is too small, as an argument."""
    path = folder / "gemmule.sv"
    with planted_rtl():
        text = generate_verilog(TINY, folder).read_text(encoding="utf-8")
    path.write_text(with_hulls(with_choice(text), TINY.spm_banks), encoding="utf-8")
    return path


def notices(verilog: Path, number: int, first: int, last: int) -> list[bool]:
    """Of each of these programs, one after the other on a device with a fault: whether model and RTL agree."""
    model = Simulator(TINY, dram_bytes=DRAM)
    with RtlDevice(TINY, verilog=verilog, watchdog=1_000_000, dram_bytes=DRAM,
                   arguments=[f"+planted={number}"]) as device:
        found = []
        for seed in range(first, last + 1):
            found.append(cosim(generate(TINY, seed, COMMANDS), model, device).ok)
            if not found[-1]:
                break
        return found


def find_model() -> dict[str, tuple[int, int]]:
    cases = [generate(TINY, seed, COMMANDS) for seed in range(FIRST, FIRST + MOST)]
    right = [outcome(case, Simulator) for case in cases]
    found = {}
    for fault, mutant in MODEL.items():
        with mutated(*mutant) as wrong:
            first = next((i for i, case in enumerate(cases) if outcome(case, wrong) != right[i]), None)
        if first is not None:
            found[fault] = FIRST + first, FIRST + first
        print(f"{fault}: {found.get(fault)}", flush=True)
    return found


def find_rtl(verilog: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for number, fault in enumerate(RTL, 1):
        seen = notices(verilog, number, FIRST, FIRST + MOST - 1)
        last = FIRST + len(seen) - 1
        # What an empty device shows first may come earlier than what one does that has run the programs before.
        for first in range(last, FIRST - 1, -1) if not seen[-1] else ():
            if not (fewer := notices(verilog, number, first, last))[-1]:
                found[fault] = first, first + len(fewer) - 1
                break
        print(f"{fault}: {found.get(fault)}", flush=True)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {"model": find_model(), "rtl": find_rtl(planted_verilog(Path(folder)))}
    FOUND.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
