"""The delivered Verilog under Icarus Verilog, where a signal can be unknown: `make fourstate`.

Not collected with the other tests, because it takes minutes. One random program runs twice: as the RTL is, where every
output must be known in every cycle from reset on, and with all initial values of registers and RAMs taken out, so
that only the reset makes them known. The text is the one that `gemmule verilog` writes; only its branches are made
stricter.
"""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.csr import Control, Csr, base_offset, length_offset, limit_offset
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.fuzz.wipe import wipe
from gemmule.sim.launch import Launch
from gemmule.sim.rtl.verilog import verilog_path
from gemmule.sim.simulator import Simulator

CONFIG = load_config("tiny")
BENCH = Path(__file__).with_name("fourstate.sv")
SEED = 2
COMMANDS = 80


def without_initial_values(text: str) -> str:
    """Registers and RAMs begin unknown; ROMs (some initial value is not 0) stay."""
    text = re.sub(r"^(  (?:output )?reg .*?) = \d+'[hd][0-9a-f]+;$", r"\1;", text, flags=re.MULTILINE)
    return re.sub(r"^  initial begin\n(?:    \S+\s*\[\d+\] = \d+'[hd]0+;\n)+  end\n", "", text, flags=re.MULTILINE)


def with_doubtful_branches(text: str) -> str:
    """``if`` and ``casez`` of an unknown value make what the block chooses unknown; in Verilog they take a branch."""

    def block(found: re.Match[str]) -> str:
        name = re.search(r"^ +(?:\{ )?(\\\S+ |[\w$]+)(?: ?\[.*\].*)? = ", found[0], re.MULTILINE)[1]
        name = name.replace("\\", r"\\")  # an escaped identifier, in a replacement
        doubt = rf"if (^(\2) === 1'bx) {name} = 'x;\n\1else "
        body = re.sub(r"^ *\(\* full_case .*\*\)\n", "", found[0], flags=re.MULTILINE)
        body = re.sub(r"^( +)(?=if \((.*)\) begin$)", rf"\1{doubt}", body, flags=re.MULTILINE)
        body = re.sub(r"^( +)end else (?=if \((.*)\) begin$)", rf"\1end else {doubt}", body, flags=re.MULTILINE)
        return re.sub(r"^( +)(?=casez \((.*)\)$)", rf"\1{doubt}", body, flags=re.MULTILINE)

    return re.sub(r"^  always_comb begin\n(?:   .*\n)*  end\n", block, text, flags=re.MULTILINE)


def with_bitwise_sums(text: str) -> str:
    """The sums of the processing elements bit by bit: ``+`` makes a whole sum unknown for one unknown bit.

    Until the first output-stationary command the upper bits of a running sum (``upper`` in hw/matrix/pe.py) are
    unknown, as they may be: no weight-stationary sum has them, and a carry does not go down.
    """
    text, count = re.subn(r"^(  assign .* = )({ upper_\d+_\d+, .* }) \+ ({ .*product_.* });$",
                          r"\1add_bitwise(\2, \3);", text, flags=re.MULTILINE)
    assert count == CONFIG.dim ** 2
    return text


def host_writes(case: Launch) -> list[tuple[int, int]]:
    """Register writes of a launch, the start last."""
    writes = [(Csr.PROGRAM_LO, case.program), (Csr.PROGRAM_HI, 0),
              (Csr.PROGRAM_COMMANDS, len(case.image) // 32)]
    writes += [(length_offset(i), int(value)) for i, value in enumerate(case.lengths) if i]
    for offset, values in ((base_offset, case.bases), (limit_offset, case.limits)):
        for i, value in enumerate(values):
            writes += [(offset(i), int(value) & 0xFFFFFFFF), (offset(i) + 4, int(value) >> 32)]
    return [*writes, (Csr.CONTROL, Control.START)]


def simulate(verilog: str, case: Launch, folder: Path, *arguments: str,
             watchdog: int = 200_000) -> tuple[str, np.ndarray]:
    """What the bench printed, and all DRAM bytes at the end (-1: unknown)."""
    source = folder / "gemmule.sv"
    source.write_text(verilog)
    dram = case.dram.copy()
    dram[case.program:case.program + len(case.image)] = np.frombuffer(case.image, dtype=np.uint8)
    writes = host_writes(case)
    width = CONFIG.bus_bytes
    (folder / "host.hex").write_text("".join(f"{at:x}\n{value:x}\n" for at, value in writes))
    (folder / "dram.hex").write_text("".join(f"{word[::-1].tobytes().hex()}\n" for word in dram.reshape(-1, width)))
    parameters = {"ADDRESS_BITS": CONFIG.address_bits, "BUS_BYTES": width, "WORDS": len(dram) // width,
                  "HOST_WRITES": len(writes), "WATCHDOG": watchdog}
    compiled = subprocess.run(
        ["iverilog", "-g2012", "-s", "fourstate", "-o", "bench.vvp",
         *(f"-Pfourstate.{name}={value}" for name, value in parameters.items()), str(BENCH), str(source)],
        cwd=folder, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr[-2000:]
    out = subprocess.run(["vvp", "-n", "bench.vvp", *arguments], cwd=folder, capture_output=True, text=True,
                         check=True, timeout=600).stdout
    words = [word for line in (folder / "after.hex").read_text().splitlines() if not line.startswith("//")
             for word in line.split()]
    pairs = [word[i:i + 2] for word in words for i in range(2 * width - 2, -1, -2)]
    return out, np.array([int(pair, 16) if set(pair) <= set("0123456789abcdef") else -1 for pair in pairs])


@pytest.fixture(scope="module")
def case() -> Launch:
    random = generate(CONFIG, SEED, COMMANDS, brief=True)
    # No reset clears memories: commands that set all of them come first.
    return replace(random, image=wipe(CONFIG, len(random.dram)).image + random.image)


@pytest.fixture(scope="module")
def expected(case: Launch) -> np.ndarray:
    model = Simulator(CONFIG, dram_bytes=len(case.dram))
    model.load(case)
    model.run()
    after = np.frombuffer(model.read_dram(0, len(case.dram)), dtype=np.uint8)
    assert (after != case.dram).sum() > 1000
    return after


@pytest.fixture(scope="module")
def verilog() -> str:
    delivered = verilog_path(CONFIG).read_text()
    assert delivered.count(" if (") > 1000
    return with_doubtful_branches(delivered)


def test_outputs_are_known_from_reset_on(case, expected, verilog, tmp_path):
    print(f"seed {SEED}")
    out, after = simulate(verilog, case, tmp_path)
    print(out)
    assert "interrupt after" in out
    assert " 0 unknown outputs" in out
    assert "protocol" not in out
    assert (after == expected).all()


def test_reset_alone_makes_the_device_known(case, expected, verilog, tmp_path):
    bare = with_bitwise_sums(without_initial_values(verilog))
    assert not re.search(r"^\s*reg .* = \d+'", bare, re.MULTILINE)
    out, after = simulate(bare, case, tmp_path, "+payload=valid")
    print(out)
    assert "interrupt after" in out
    assert " 0 unknown outputs" in out
    assert (after == expected).all()


def test_an_unknown_output_is_seen(case, verilog, tmp_path):
    broken, count = re.subn(r"^    irq <= .*;$", "    irq <= 1'hx;", verilog, count=1, flags=re.MULTILINE)
    assert count == 1
    out, _ = simulate(broken, case, tmp_path, watchdog=20)
    assert "no interrupt after 20 cycles" in out
    assert "unknown: irq or trace" in out
