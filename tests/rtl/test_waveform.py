"""The packing of waveforms without an installed library, and the reader of their names."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.hw.tb import FST_HEADERS
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.rtl.fst import _unpacked, signals_of
from gemmule.sim.rtl.waveform import GROUPS, layout

PROGRAM = """
#include <cstdio>
#include "lz4.h"
#include "zlib.h"
int main() {  // of each block: its size, then its bytes
    for (int size; std::fread(&size, 4, 1, stdin) == 1;) {
        std::vector<char> data(size + 1), packed(LZ4_compressBound(size));
        if (std::fread(data.data(), 1, size, stdin) != static_cast<size_t>(size)) return 1;
        const int count = LZ4_compress_default(data.data(), packed.data(), size, packed.size());
        std::fwrite(&count, 4, 1, stdout);
        std::fwrite(packed.data(), 1, count, stdout);
        std::vector<unsigned char> stored(compressBound(size));
        uLongf length = stored.size();
        if (compress2(stored.data(), &length, reinterpret_cast<Bytef*>(data.data()), size, 9) != Z_OK) return 2;
        if (length <= static_cast<uLongf>(size)) return 3;  // never taken for smaller
    }
}
"""


@pytest.fixture(scope="module")
def packer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packer")
    (folder / "packer.cpp").write_text(PROGRAM)
    subprocess.run(["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
                    f"-I{FST_HEADERS[0].parent}", "packer.cpp", "-o", "packer"], cwd=folder, check=True)
    return folder / "packer"


def test_what_is_packed_can_be_unpacked(packer: Path) -> None:
    """Sizes around every limit of the format, from one value only to noise."""
    draw = random.Random(1)
    print("seed 1")
    blocks = [bytes(draw.randrange(values) for _ in range(size))
              for size in (0, 1, 4, 5, 12, 13, 14, 15, 16, 19, 20, 270, 271, 285, 5000) for values in (1, 2, 4, 256)]
    blocks += [block * 40 for block in blocks[-4:]]  # matches further away than an offset can say
    blocks += [bytes(range(256)) * 2 + b"end" * 300]
    out = subprocess.run([str(packer)], input=b"".join(len(b).to_bytes(4, "little") + b for b in blocks),
                         capture_output=True, check=True).stdout
    at, sizes = 0, []
    for block in blocks:
        count = int.from_bytes(out[at:at + 4], "little")
        assert _unpacked(out[at + 4:at + 4 + count], len(block)) == block
        at, sizes = at + 4 + count, [*sizes, count]
    assert at == len(out)
    assert sum(sizes) < sum(map(len, blocks)) / 2


def test_a_file_without_names_is_refused(tmp_path: Path) -> None:
    """A simulator that was killed leaves its values, but not the block of names."""
    path = tmp_path / "dump.fst"
    for content in (b"", b"$version", bytes([0, *(329).to_bytes(8, "big"), *bytes(321)]),
                    bytes([6, *(40).to_bytes(8, "big"), 1])):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="no whole FST file"):
            signals_of(path)


@pytest.mark.rtl
@pytest.mark.long
def test_a_simulator_with_tracing_leaves_a_whole_file() -> None:
    """Around a stand-in for the device, which builds in seconds; with the device: tests/equivalence/test_cosim.py."""
    with RtlDevice(load_config("tiny"), verilog=Path(__file__).with_name("stub.sv"), waves=True) as rtl:
        rtl.wait(1000)
    try:
        path = rtl.folder / "dump.fst"
        assert int.from_bytes(path.read_bytes()[17:25], "big") >= 10_000 * 1000  # the header's end, in ps
        found = signals_of(path)
    finally:
        shutil.rmtree(rtl.folder)
    assert found["gemmule_tb.clk"] == ""
    assert found["gemmule_tb.device.m_axi_araddr"] == "[31:0]"
    assert "gemmule_tb.dram.arready" in found


def test_layout_leaves_out_what_is_not_there() -> None:
    signals = {f"gemmule_tb.{name}": "[3:0]" if "addr" in name else "" for group in GROUPS.values() for name in group}
    text = layout(signals, "x.fst")
    assert text.count("\ngemmule_tb.") == len(signals)
    assert "@22\ngemmule_tb.device.m_axi_araddr[3:0]\n" in text
    assert "@28\ngemmule_tb.device.irq\n" in text
    del signals["gemmule_tb.device.irq"]
    assert layout(signals, "x.fst") == text.replace("@28\ngemmule_tb.device.irq\n", "")
    for group in GROUPS:
        assert text.count(f"\n-{group}\n") == 2
