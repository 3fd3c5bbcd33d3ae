"""What Yosys' ``sat`` says of a module: that an output never rises, or what others are where it does."""

from gemmule.hw.flow.ask import counterexample
from gemmule.hw.flow.gates import Gates
from gemmule.hw.flow.tools import SynthError

FAILS = r"""
SAT proof finished - model found: FAIL!

  Signal Name                 Dec        Hex             Bin
  --------------- --------------- ---------- ---------------
  \apart                        5          5            0101
  \broken                      --        --  1000000000000000000000000000000000000000000000000000000000000000000
  \shown                        0          0               0
"""


class Said:
    """A tool that says this."""

    def __init__(self, log):
        self.log = log

    def run(self, tool, arguments, folder, log, progress):
        if self.log is None:
            raise SynthError("killed")
        (folder / log).write_text(self.log)


def asked(log, tmp_path):
    gates = Gates()
    text = gates.module(wrong=[gates.gate("$not", gates.given("a"))])
    return counterexample(tmp_path, text, ("shown", "apart", "broken"), Said(log), lambda step: None)


def test_a_counterexample_is_read_from_the_lowest_bit_on(tmp_path):
    found = asked(FAILS, tmp_path)
    assert found["apart"] == [True, False, True, False]
    assert found["shown"] == [False]
    assert (len(found["broken"]), found["broken"].index(True)) == (67, 66)


def test_what_is_proved_and_what_takes_too_long_are_told_apart(tmp_path):
    assert asked("SAT proof finished - no model found: SUCCESS!\n", tmp_path) == {}
    assert asked("Interrupted SAT solver: TIMEOUT!\n", tmp_path) is None
    assert asked(None, tmp_path) is None
