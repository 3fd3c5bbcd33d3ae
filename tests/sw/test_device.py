"""Back ends by name: a DRAM for the RTL that most share, larger ones for larger models."""

from __future__ import annotations

import pytest

from gemmule.config import load_config
from gemmule.sim.rtl import device as rtl
from gemmule.sw.device.backends import MOST_RTL_DRAM_BYTES, RTL_DRAM_BYTES, DeviceError, open_device

TINY = load_config("tiny")


@pytest.mark.parametrize(("needed", "given"), [
    (1, RTL_DRAM_BYTES), (RTL_DRAM_BYTES, RTL_DRAM_BYTES), (RTL_DRAM_BYTES + 1, 2 * RTL_DRAM_BYTES),
    (289_275_904, 512 << 20), (MOST_RTL_DRAM_BYTES, MOST_RTL_DRAM_BYTES)])
def test_dram_of_the_rtl(monkeypatch: pytest.MonkeyPatch, needed: int, given: int) -> None:
    found: list[int] = []
    monkeypatch.setattr(rtl, "RtlDevice", lambda config, dram_bytes: found.append(dram_bytes))
    open_device("rtl", TINY, needed)
    assert found == [given]


def test_more_than_there_is() -> None:
    with pytest.raises(DeviceError, match=r"up to 1,073,741,824 bytes of DRAM, not 1,073,741,825; use --backend model"):
        open_device("rtl", TINY, MOST_RTL_DRAM_BYTES + 1)
