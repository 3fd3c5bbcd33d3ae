"""Invariants: which are proved, that a false one is refused with all that builds on it, what a proof makes of them."""

import json

import pytest

from gemmule.hw.flow import induction
from gemmule.hw.flow.cells import Netlist
from gemmule.hw.flow.equal import miter, unseen
from gemmule.hw.flow.induction import Invariant, known_of
from gemmule.hw.flow.invariants import INVARIANTS
from gemmule.hw.flow.live import constants, seen
from gemmule.hw.flow.mutate import Mutant
from tests.hw.flow.brute import cell, rises

RST, A, B = 2, 3, 4
STAYS, FREE, BEHIND, NEXT, GATED, OUT, SUM = 10, 11, 12, 20, 30, 40, 41


def register(was, d, q, value="0"):
    return cell(was, "$sdff", {"SRST_POLARITY": 1, "SRST_VALUE": value}, CLK=[9], SRST=[RST], D=[d], Q=[q])


def netlist(reset="0"):
    """``stays`` is 1 only if it was, ``free`` is what comes in, ``behind`` what ``free`` was; out = stays & b | sum."""
    return Netlist(json.dumps({"modules": {"gemmule": {
        "ports": {"given": {"direction": "input", "bits": [RST, A, B]}, "out": {"direction": "output", "bits": [OUT]}},
        "netnames": {name: {"bits": [bit]} for name, bit in {
            "rst": RST, "stays": STAYS, "free$3": FREE, "behind": BEHIND}.items()},
        "cells": {
            "next": cell("next", "$and", A=[STAYS], B=[A], Y=[NEXT]), "stays": register("stays", NEXT, STAYS, reset),
            "free": register("free", A, FREE), "behind": register("behind", FREE, BEHIND),
            "gated": cell("gated", "$and", A=[STAYS], B=[BEHIND], Y=[GATED]),
            "out": cell("out", "$or", A=[GATED], B=[B], Y=[OUT])}}}}))


def never(name):
    return Invariant(name, "", lambda view: view.no(view[name][0]), ((name, 0),))


@pytest.fixture
def proved(monkeypatch, tmp_path):
    monkeypatch.setattr(induction, "never_rises", lambda output, folder, text, *_: not rises(output, text))

    def go(of, *invariants):
        return [one.name for one in known_of(of, invariants, tmp_path, None).invariants]

    return go


def test_what_holds_after_a_reset_and_then_on_is_proved(proved):
    assert proved(netlist(), never("stays")) == ["stays"]


def test_a_false_invariant_is_refused_and_what_holds_only_with_it(proved):
    assert proved(netlist(), never("free")) == []
    assert proved(netlist(), never("stays"), never("behind"), never("free")) == ["stays"]


def test_one_that_a_reset_does_not_bring_about_is_refused(proved):
    """Without a reset nothing could be said against it."""
    assert proved(netlist(reset="1"), never("stays")) == []


def test_what_another_netlist_lacks_is_left_out(proved):
    assert proved(netlist(), never("elsewhere"), never("stays")) == ["stays"]


def mutant(was, port, mode):
    return Mutant(1, "load", mode, "gemmule", was, port, 0)


@pytest.mark.parametrize(("was", "port", "mode", "alone", "with_invariant"), [
    ("gated", "B", "inv", True, False),  # nobody looks, as ``stays`` is 0
    ("behind", "D", "inv", True, False),  # not even at what is different later
    ("gated", "Y", "inv", True, True),
    ("stays", "Q", "const1", True, True),  # the invariant is of the device without the mutation
    ("next", "Y", "const1", True, True),
])
def test_a_proof_with_invariants_begins_where_they_hold(monkeypatch, tmp_path, was, port, mode, alone, with_invariant):
    monkeypatch.setattr(induction, "never_rises", lambda output, folder, text, *_: not rises(output, text))
    known, one = known_of(netlist(), [never("stays")], tmp_path, None), mutant(was, port, mode)
    assert rises("wrong", miter(netlist(), one, 1, 0)) is alone
    assert rises("wrong", miter(netlist(), one, 1, 0, known)) is with_invariant


def test_nothing_is_known_behind_a_step_with_the_mutation():
    with pytest.raises(AssertionError, match="nothing is known"):
        miter(netlist(), mutant("gated", "B", "inv"), 2, 0, induction.Known(()))


def test_what_zeros_hide_is_not_seen():
    found = netlist()
    assert {BEHIND, FREE} <= seen(found)
    assert not {BEHIND, FREE} & seen(found, STAYS, zeros=frozenset([STAYS]))
    assert STAYS in seen(found, STAYS, zeros=frozenset([STAYS]))


@pytest.mark.parametrize(("kind", "others", "expected"), [
    ("$and", [A], {SUM: "0"}), ("$or", [A], {}), ("$not", [], {SUM: "1"}), ("$logic_not", [], {SUM: "1"}),
    ("$reduce_and", [], {SUM: "0"}), ("$eq", ["1"], {SUM: "0"}), ("$ne", ["1"], {SUM: "1"}), ("$eq", [A], {}),
    ("$reduce_or", [], {SUM: "0"}), ("$xor", [A], {}), ("$logic_and", [A], {SUM: "0"}),
])
def test_what_is_constant_by_a_zero(kind, others, expected):
    nets = {"A": [STAYS], "Y": [SUM]} | ({"B": others} if others else {})
    found = constants(Netlist(json.dumps({"modules": {"gemmule": {"ports": {}, "cells": {
        "x": cell("x", kind, **nets)}}}})), [STAYS])
    assert {bit: value for bit, value in found.items() if bit != STAYS} == expected


@pytest.mark.parametrize(("was", "port", "expected"), [
    ("lost", "Y", True), ("lost", "A", False), ("last", "Q", True), ("free", "Q", False)])
def test_an_output_that_nobody_reads_is_not_looked_at(was, port, expected):
    """A register may hold what nobody reads, beside what somebody does: a proof need not ask what comes to it."""
    found = netlist()
    more = Netlist(json.dumps({"modules": {"gemmule": {"ports": {}, "cells": {
        "lost": cell("lost", "$and", A=[FREE], B=[A], Y=[SUM]), "last": register("last", SUM, SUM + 1)}}}}))
    found.cells |= more.cells
    found.was |= more.was
    assert unseen(found, mutant(was, port, "inv")) is expected


def test_invariants_have_names_and_reasons():
    assert len({one.name for one in INVARIANTS}) == len(INVARIANTS)
    assert all(len(one.why) > 10 for one in INVARIANTS)
