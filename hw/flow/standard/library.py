"""Libraries of standard cells: where their Liberty files are, and what mapping and timing need to know of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gemmule.hw.flow.tools import SynthError

__all__ = ["LIBRARIES", "Library", "MacroModel"]


@dataclass(frozen=True)
class MacroModel:
    """What a memory macro takes, by an outside model: a line through published macros.

    Parameters
    ----------
    fixed_um2, bit_um2: area of a macro with one or two ports: ``fixed_um2 + bit_um2 * bits``. Every further read
        port is one copy more.
    access_ns: clock to data.
    setup_ns: address, data and enables before the clock.
    source: where these come from.
    """

    fixed_um2: float
    bit_um2: float
    access_ns: float
    setup_ns: float
    source: str

    def area(self, bits: int, copies: int) -> float:
        """Of ``copies`` macros of ``bits`` bits, in um2."""
        return copies * (self.fixed_um2 + self.bit_um2 * bits)

    def scaled(self, factor: float, source: str) -> MacroModel:
        """The same in a process whose features are ``factor`` as long: areas by its square, times by itself."""
        return MacroModel(self.fixed_um2 * factor**2, self.bit_um2 * factor**2, self.access_ns * factor,
                          self.setup_ns * factor, f"{self.source}, {source}")


@dataclass(frozen=True)
class Library:
    """A library of standard cells at one corner.

    Parameters
    ----------
    title: process, corner, voltage and temperature.
    liberty: its Liberty file.
    install: what to do when that file is not there.
    nand2: the cell of one gate equivalent.
    driver: cell that drives inputs; outputs have ``load_pf``.
    ties: cell and pin for constant ones, and for constant zeros; none: constants stay constants.
    target_ns: delay that mapping aims at.
    macros: its memories.
    """

    title: str
    liberty: Path
    install: str
    nand2: str
    driver: str
    load_pf: float
    macros: MacroModel
    ties: tuple[tuple[str, str], tuple[str, str]] | None = None
    target_ns: float = 4.0

    def there(self) -> Path:
        """The Liberty file.

        Raises:
            SynthError: it is not there.
        """
        if not self.liberty.is_file():
            raise SynthError(f"synth: {self.liberty} is not there; {self.install}")
        return self.liberty


_OPENRAM = MacroModel(
    fixed_um2=96_880, bit_um2=11.45, access_ns=2.5, setup_ns=0.77,
    source="OpenRAM's sky130 macros of 1 and 2 KiB with two ports (479.78 x 397.5 and 683.1 x 416.54 um; data sheet of "
           "the larger, tt, 25 C, 1.8 V)")

LIBRARIES: Mapping[str, Library] = {
    "osu018": Library(
        title="OSU 0.18 um (TSMC), typical, 1.8 V, 25 C",
        liberty=Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib"),
        install="on Debian: apt-get install qflow-tech-osu018",
        nand2="NAND2X1", driver="BUFX2", load_pf=0.05,
        macros=_OPENRAM.scaled(0.18 / 0.13, "scaled to 0.18 um by length")),
    "sky130": Library(
        title="SkyWater 130 nm (sky130_fd_sc_hd), typical, 1.8 V, 25 C, characterised here",
        liberty=Path(__file__).with_name("sky130.lib"),
        install="make cells makes it",
        nand2="sky130_fd_sc_hd__nand2_1", driver="sky130_fd_sc_hd__buf_2", load_pf=0.033,
        ties=(("sky130_fd_sc_hd__conb_1", "HI"), ("sky130_fd_sc_hd__conb_1", "LO")),
        macros=_OPENRAM),
}
"""By the name of the target."""
