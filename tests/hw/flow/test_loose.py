"""Relations between a device and its mutant: what is proved with bits that differ, and what must not be."""

import json

import pytest

from gemmule.hw.flow import loose
from gemmule.hw.flow.cells import Netlist
from gemmule.hw.flow.equal import miter
from gemmule.hw.flow.induction import Invariant, Known
from gemmule.hw.flow.loose import Condition, Search, channels, conditions
from gemmule.hw.flow.mutate import Mutant
from tests.hw.flow.brute import cell, example, rises

RST, A, B, EN = 2, 3, 4, 5
VALID, DATA, GIVEN, OUT, LATE, SHOWN = 10, 11, 20, 21, 22, 23
NOTHING = Known(())


def register(was, d, q, value="0"):
    return cell(was, "$sdffe", {"EN_POLARITY": 1, "SRST_POLARITY": 1, "SRST_VALUE": value},
                CLK=[9], SRST=[RST], EN=[EN], D=[d], Q=[q])


def netlist(looks="$and", ports=None):
    """Where enabled, ``valid`` takes a and ``data`` a & b; out = valid & data."""
    return Netlist(json.dumps({"modules": {"gemmule": {
        "ports": {"given": {"direction": "input", "bits": [RST, A, B, EN]},
                  **(ports or {"out": {"direction": "output", "bits": [OUT]}})},
        "netnames": {name: {"bits": [bit]} for name, bit in {
            "rst": RST, "core.valid": VALID, "core.data": DATA}.items()},
        "cells": {
            "masked": cell("masked", "$and", A=[A], B=[B], Y=[GIVEN]), "valid": register("valid", A, VALID),
            "data": register("data", GIVEN, DATA), "out": cell("out", looks, A=[VALID], B=[DATA], Y=[OUT])}}}}))


def mutant(was, port, mode):
    return Mutant(1, "load", mode, "gemmule", was, port, 0)


def proved(of, one, known=NOTHING):
    search = Search(of, one, known, example)
    return len(search.loose) if search.run() else None


def test_what_nobody_looks_at_may_differ_for_any_time():
    """Data differ only beside a ``valid`` that is 0, for as long as nothing is enabled."""
    one = mutant("masked", "A", "const1")
    assert all(rises("wrong", miter(netlist(), one, steps, 0)) for steps in (1, 2, 3))
    assert proved(netlist(), one) == 1


def test_the_condition_may_be_the_other_bit():
    """``valid`` without need is not seen beside data that are 0."""
    assert proved(netlist(), mutant("valid", "D", "const1")) == 1


@pytest.mark.parametrize(("was", "port", "mode"), [
    ("masked", "Y", "inv"), ("masked", "A", "const0"), ("masked", "B", "const1"), ("valid", "D", "const0"),
    ("valid", "D", "inv"), ("data", "Q", "inv"), ("data", "D", "const1"), ("out", "A", "const1"),
    ("data", "EN", "const0"), ("valid", "EN", "const1"), ("data", "SRST", "const1")])
def test_what_changes_something_is_not_proved(was, port, mode):
    assert proved(netlist(), mutant(was, port, mode)) is None


def test_what_is_looked_at_without_the_condition_is_not_proved():
    assert proved(netlist("$or"), mutant("masked", "A", "const1")) is None


def test_a_reset_that_the_mutation_prevents_is_no_proof(monkeypatch, tmp_path):
    """``stays`` is always 0 behind a reset; a mutant without that reset may power up with 1, and stay so."""
    stays, gated, out = 30, 31, 32
    of = Netlist(json.dumps({"modules": {"gemmule": {
        "ports": {"given": {"direction": "input", "bits": [RST, A]}, "out": {"direction": "output", "bits": [out]}},
        "netnames": {"rst": {"bits": [RST]}, "stays": {"bits": [stays]}},
        "cells": {
            "next": cell("next", "$and", A=[stays], B=[A], Y=[gated]),
            "stays": cell("stays", "$sdff", {"SRST_POLARITY": 1, "SRST_VALUE": "0"}, CLK=[9], SRST=[RST], D=[gated],
                          Q=[stays]),
            "out": cell("out", "$and", A=[stays], B=[A], Y=[out])}}}}))
    known = Known((Invariant("never", "", lambda view: view.no(view["stays"][0]), (("stays", 0),)),))
    one = mutant("stays", "SRST", "const0")
    monkeypatch.setattr(loose, "never_rises", lambda output, folder, text, *_: not rises(output, text))
    assert not rises("wrong", miter(of, one, 1, 0, known)), "from a state with the invariant on it changes nothing"
    assert not loose.resets(of, one, known, tmp_path, None)
    assert proved(of, one, known) is None
    other = mutant("next", "A", "const0")
    assert loose.resets(of, mutant("out", "Y", "inv"), known, tmp_path, None)
    assert proved(of, other, known) == 0


def test_a_channel_of_the_bus_means_nothing_without_valid():
    ports = {"m_axi_arvalid": {"direction": "output", "bits": [VALID]},
             "m_axi_arlen": {"direction": "output", "bits": [DATA]}}
    assert channels(netlist(ports=ports)) == {None: (VALID,), VALID: (DATA,)}
    assert proved(netlist(ports=ports), mutant("masked", "A", "const1")) == 1
    assert proved(netlist(ports=ports), mutant("masked", "B", "const1")) is None
    bare = {name.replace("arlen", "rready"): port for name, port in ports.items()}
    assert channels(netlist(ports=bare)) == {None: (VALID, DATA)}
    assert proved(netlist(ports=bare), mutant("masked", "A", "const1")) is None


def test_conditions_are_looked_for_near_a_bit():
    assert Condition(VALID, True) in conditions(netlist(), DATA)
    assert Condition(DATA, True) not in conditions(netlist(), DATA)
