"""FPGAs: what a part holds, what its cells count as, and how Yosys and nextpnr are told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmule.hw.flow.floorplan import Site, Sites

__all__ = ["ECP5", "GOWIN", "TARGETS", "Target"]


@dataclass(frozen=True)
class Target:
    """An FPGA: nextpnr's options, what the part holds, and what a mapped netlist's cells take of it.

    Parameters
    ----------
    family: "ecp5" or "gowin": who maps (:mod:`gemmule.hw.flow.synth`) and places (:mod:`gemmule.hw.flow.route`).
    nextpnr: the program, as :class:`gemmule.hw.flow.tools.Tools` names it.
    cells: type of a cell to what it counts as, fields of :class:`gemmule.hw.flow.synth.Area`.
    titles: what the family calls LUT sites and carry cells.
    sites: places of cells that are fixed between two placements (:mod:`gemmule.hw.flow.floorplan`).
    pins: the harness's ports, where the tool wants them placed.
    caveats: what its numbers leave out.
    """

    name: str
    part: str
    family: str
    nextpnr: str
    options: tuple[str, ...]
    cells: Mapping[str, Mapping[str, int]]
    titles: Mapping[str, str]
    comb: int
    ff: int
    dsp: int
    bram: int
    sites: Sites = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()


def _sites(columns: tuple[int, ...], rows: tuple[int, ...], kind: str, places: Mapping[int, int]) -> tuple[Site, ...]:
    """Sites of blocks that stand at ``columns`` in ``rows``: in a block at its tile, by the number in their name."""
    return tuple(Site(x + tile, y, f"X{x + tile}/Y{y}/{kind}{number}")
                 for y in rows for x in columns for number, tile in places.items())


_COLUMNS = (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114)
"""Columns of DSP and block RAM, four sites each (Project Trellis' data base of the LFE5UM5G-85F)."""
_ECP5_SITES = {
    "MULT18X18D": _sites(_COLUMNS, (10, 34, 58), "MULT18_", {0: 0, 1: 1, 4: 4, 5: 5}),
    "DP16KD": _sites(_COLUMNS, (22, 46, 70, 82), "EBR", {0: 0, 1: 2, 2: 4, 3: 6}),
}
ECP5 = Target(
    "ecp5-85k", "LFE5UM5G-85F, CABGA381, speed 8", "ecp5", "nextpnr",
    ("--um5g-85k", "--package", "CABGA381", "--speed", "8", "--lpf-allow-unconstrained"), {
        "LUT4": {"lut4": 1, "comb": 1}, "CCU2C": {"carry": 1, "comb": 2}, "TRELLIS_DPR16X4": {"lutram": 1, "comb": 4},
        "TRELLIS_FF": {"ff": 1}, "MULT18X18D": {"dsp": 1}, "DP16KD": {"bram": 1},
    }, {"comb": "COMB", "carry": "CCU2C"}, comb=83640, ff=83640, dsp=len(_ECP5_SITES["MULT18X18D"]),
    bram=len(_ECP5_SITES["DP16KD"]), sites=_ECP5_SITES)
GOWIN = Target(
    "gowin-138k", "GW5AST-LV138PG484A, C1/I0", "gowin", "nextpnr-gowin",
    ("--device", "GW5AST-LV138PG484AC1/I0", "--vopt", "family=GW5AST-138C"), {
        # Wide look-up tables are four-input ones behind multiplexers that take no site.
        **{f"LUT{n}": {"lut4": 1, "comb": 1} for n in (1, 2, 3, 4)}, "ALU": {"carry": 1, "comb": 1},
        **{f"RAM16SDP{n}": {"lutram": 1, "comb": 4} for n in (1, 2, 4)},
        **{name: {"ff": 1} for name in ("DFF", "DFFE", "DFFS", "DFFSE", "DFFR", "DFFRE", "DFFP", "DFFPE", "DFFC",
                                        "DFFCE")},
        # A block holds a 12 x 12 multiplier, two if the second has no 27 x 18 multiplier beside it.
        "MULT12X12": {"dsp": 1}, "MULTALU27X18": {"dsp": 2},
        **{name: {"bram": 1} for name in ("SP", "SPX9", "SDPB", "SDPX9B", "DPB", "DPX9B", "pROM", "pROMX9")},
    }, {"comb": "LUT sites", "carry": "ALU"}, comb=138240, ff=138240, dsp=596, bram=340,
    pins={"clk": "V22", "rst": "AA13", "shift_in": "AB13", "load": "AA15", "shift_out": "AB15"},
    caveats=("nextpnr knows no delay through a multiplier of this part: paths end before it and begin behind it, so "
             "Fmax is that of the rest",
             "a flip-flop that no LUT feeds takes a LUT site of its own: placed, a design has more of them",
             "the family is experimental in Yosys, nextpnr and Project Apicula"))
TARGETS: Mapping[str, Target] = {target.name: target for target in (ECP5, GOWIN)}
