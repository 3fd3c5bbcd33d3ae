"""The slowest paths by pair of units, from delays as nextpnr writes them."""

import pytest

from gemmule.hw.flow.paths import Delays, delays_of, slowest


def times(ps: float) -> str:
    """An SDF delay: rising and falling, each least, typical and most."""
    return f"({ps / 2:g}:{ps / 2:g}:{ps / 2:g}) ({ps / 4:g}:{ps / 2:g}:{ps:g})"


def wire(start: str, end: str, ps: float) -> str:
    return f"        (INTERCONNECT {start} {end} {times(ps)})"


def register(name: str) -> list[str]:
    """A register: 500 ps to its output, 100 ps setup."""
    return [
        "  (CELL", '    (CELLTYPE "TRELLIS_FF")', f"    (INSTANCE {name})", f"        (IOPATH CLK Q {times(500)})",
        *(f"      (SETUPHOLD ({edge} DI) (posedge CLK) (80:90:100) (700:800:900))" for edge in ("posedge", "negedge")),
        "    )"]


def gate(name: str, ps: float) -> list[str]:
    return ["  (CELL", '    (CELLTYPE "TRELLIS_COMB")', f"    (INSTANCE {name})", f"        (IOPATH A F {times(ps)})",
            f"        (IOPATH B F {times(ps)})", "    )"]


TEXT = [
    "(DELAYFILE", '  (SDFVERSION "3.0")', "    (INSTANCE )",
    # one.a and two.b meet in a gate before two.c; one.a also goes there by a gate more; the clock and a pin go in.
    wire("pin/O", "one.a/DI", 9000), wire("clock/O", "one.a/CLK", 3000), wire("one.a\\[3\\]/Q", "g/A", 1000),
    wire("two.b/Q", "g/B", 3000), wire("g/F", "two.c/DI", 2000), wire("g/F", "h/A", 100), wire("h/F", "one.d/DI", 100),
    wire("one.a\\[3\\]/Q", "h/B", 2000),
    *register("one.a\\[3\\]"), *register("two.b"), *register("two.c"), *register("one.d"), *gate("g", 200),
    *gate("h", 300), ")"]


def test_arcs_by_kind() -> None:
    delays = delays_of(TEXT)
    assert set(delays.launches) == {"one.a[3]/Q", "two.b/Q", "two.c/Q", "one.d/Q"}
    assert delays.launches["two.b/Q"] == 500
    assert delays.setups["two.c/DI"] == 100  # not the hold
    assert delays.arcs == {"g/A": [("g/F", 200)], "g/B": [("g/F", 200)], "h/A": [("h/F", 300)], "h/B": [("h/F", 300)]}
    assert ("h/A", 100) in delays.wires["g/F"]


def test_every_pair_has_its_slowest_path() -> None:
    pairs = slowest(delays_of(TEXT), lambda cell: cell.split(".")[0])
    assert [(p.start_unit, p.end_unit, p.ns, p.cells, p.routing_ns, p.start, p.end) for p in pairs] == [
        ("two", "two", 5.8, 1, 5.0, "two.b", "two.c"),
        ("two", "one", 4.3, 2, 3.2, "two.b", "one.d"),
        ("one", "two", 3.8, 1, 3.0, "one.a[3]", "two.c"),
        ("one", "one", 3.0, 1, 2.1, "one.a[3]", "one.d"),
    ]
    assert pairs[0].mhz == pytest.approx(1000 / 5.8, abs=0.05)


def test_without_registers_there_are_no_pairs() -> None:
    assert not slowest(delays_of(gate("g", 1)), str)
    assert not slowest(Delays(), str)
