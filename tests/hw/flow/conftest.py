"""The device's Verilog, made once for the tests of this folder."""

from dataclasses import dataclass

import pytest

from gemmule.config import load_config
from gemmule.hw.flow import verilog
from gemmule.hw.flow.verilog import TOP, UNITS, Verilog, verilog_of


@dataclass(frozen=True)
class Device:
    """Configuration tiny: what Amaranth and Yosys wrote, and what became of it."""

    written: str
    plain: Verilog
    sources: Verilog
    """With source attributes."""


@pytest.fixture(scope="session")
def device() -> Device:
    tiny, rename, seen = load_config("tiny"), verilog.plain, []

    def plain(text: str) -> tuple[str, dict[str, str]]:
        seen.append(text)
        return rename(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verilog, "plain", plain)
        made, sources = (verilog_of(UNITS[TOP](tiny, None), TOP, sources=flag) for flag in (False, True))
    return Device(seen[0], made, sources)
