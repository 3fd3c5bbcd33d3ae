"""The device's Verilog, made once for the tests of this folder."""

from dataclasses import dataclass
from functools import cached_property

import pytest

from gemmule.config import load_config
from gemmule.hw.flow import verilog
from gemmule.hw.flow.verilog import TOP, UNITS, Verilog, verilog_of

TINY = load_config("tiny")


@dataclass(frozen=True)
class Device:
    """Configuration tiny: what Amaranth and Yosys wrote, and what became of it."""

    written: str
    plain: Verilog

    @cached_property
    def sources(self) -> Verilog:
        """With source attributes."""
        return verilog_of(UNITS[TOP](TINY, None), TOP, sources=True)


@pytest.fixture(scope="session")
def device() -> Device:
    rename, seen = verilog.plain, []

    def plain(text: str) -> tuple[str, dict[str, str]]:
        seen.append(text)
        return rename(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verilog, "plain", plain)
        made = verilog_of(UNITS[TOP](TINY, None), TOP)
    return Device(seen[0], made)
