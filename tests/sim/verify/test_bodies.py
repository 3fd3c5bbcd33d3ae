"""The verifier on programs with control commands: what it says, by hand."""

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.control import params, repeat, set_displacement, set_length
from gemmule.isa import COMMAND_BYTES, CONTROL, Command, Length, Source, Unit, decode_table, encode_program
from gemmule.sim.verify.order import Order
from gemmule.sim.verify.state import FAULT, FINE, RACE, UNSET
from gemmule.sim.verify.verify import ProgramError, verify

from .test_verify import BANK, GEMM, load, matrix, store

CONFIG = load_config("tiny")
BASES = np.arange(32) * 4096


def check(*commands: Command, limit: int = 1 << 16, lengths: dict[int, int] | None = None,
          address: int | None = None) -> None:
    registers = np.zeros(16, dtype=np.int64)
    for register, value in (lengths or {}).items():
        registers[register] = value
    verify(commands, CONFIG, BASES, np.full(32, limit), registers, address)


def test_a_program_with_bodies_passes() -> None:
    again = [load(0, waits={Unit.MATRIX: 1}), load(BANK, offset=64, waits={Unit.MATRIX: 1}),
             matrix(0, BANK, 0, waits={Unit.LOAD: 1, Unit.VECTOR: 1}), GEMM[3], GEMM[4]]
    scaled = Command.make(Unit.VECTOR, waits={Unit.MATRIX: 1, Unit.STORE: 1}, **GEMM[3].fields)
    check(repeat(5, 9), *again[:3], scaled, again[4])
    check(params(0, 64, 3), set_length(1, Source.WORD, index=1), repeat(1, Length(99, 1)), load(0))


def test_a_race_between_turns() -> None:
    """Turn 2 loads over what turn 1 still stores; each turn by itself is in order."""
    first, second = load(0), store(0, waits={Unit.LOAD: 1}, offset=4096)
    check(repeat(2, 1), first, second)
    with pytest.raises(ProgramError, match=(
            r"^command 3 at 1 \(load.*\) may run before command 2 \(store.*scratchpad rows 0\.\.3 "
            r"\(2 reads rows, 3 writes rows\).*wait for store:1")):
        check(repeat(2, 2), first, second)
    check(repeat(2, 9), load(0, waits={Unit.STORE: 1}), second)  # which in the first turn waits for nothing


def test_waits_count_commands_as_they_run() -> None:
    """With a turn more between them the same distance reaches less far back."""
    body = [store(0), load(4, offset=64)]
    check(*body, load(0, offset=128, waits={Unit.STORE: 1}))
    early = [store(0), repeat(1, 2), store(64, offset=256), load(0, offset=128, waits={Unit.STORE: 2})]
    check(*early[:1], repeat(1, 1), *early[2:])
    check(*early)  # number 2 of 3 has finished, so the first one too
    with pytest.raises(ProgramError, match=r"command 4 at 3 .* before command 0 \(store"):
        check(*early[:3], load(0, offset=128, waits={Unit.STORE: 4}))
    with pytest.raises(ProgramError, match="command 3 .* before command 0"):
        check(store(0), repeat(1, 1), store(64, offset=256), load(0, offset=128, waits={Unit.STORE: 3}))


def test_limits_with_displacements() -> None:
    def turns(times: int) -> list[Command]:
        return [repeat(2, times), load(0, base=1), set_displacement(1, Source.DISPLACEMENT, 1, amount=16)]

    check(*turns(4), limit=64)
    with pytest.raises(ProgramError, match=r"^command 9 at 1 \(load.*\) faults: limit$"):
        check(*turns(5), limit=64)
    with pytest.raises(ProgramError, match=r"^command 1 \(load.*\) faults: limit$"):
        check(set_displacement(0, amount=-4), load(0, offset=4))  # does not wrap
    with pytest.raises(ProgramError, match="DRAM bytes 4096"):
        check(set_displacement(0, amount=4096), load(0), store(8, base=1))


def test_a_parameter_that_nothing_has_brought() -> None:
    message = "reads a parameter that no PARAMS of this launch has brought before"
    for command in (set_length(1, Source.WORD, index=5), set_length(1, Source.HALF, index=10),
                    set_displacement(1, Source.HALF, index=11), set_length(2, Source.WORD, 2, index=3)):
        check(params(5), command, lengths={2: 2})
        check(params(1), command, lengths={2: 2})
        for before, number in (([], "0"), ([params(6)], "1"), ([params(0)], "1"),
                               ([repeat(1, 0), params(5)], "1 at 2")):
            with pytest.raises(ProgramError, match=rf"^command {number} .* {message}$"):
                check(*before, command, lengths={2: 2})
    with pytest.raises(ProgramError, match=rf"^command 6 at 2 \(control.set  .*word\[2\+len1\].* {message}"):
        check(params(0), repeat(2, 9), set_length(2, Source.WORD, 1, index=2),
              set_length(1, Source.LENGTH, 1, amount=1), lengths={1: 1})


@pytest.mark.parametrize(("commands", "message"), [
    ([repeat(2, 1), load(0)], r"^command 0 \(control.repeat  .*next 2, 1 times\) faults: illegal; it must have a body "
     r"of 1 command or more that ends within the program \(commands left: 1\), not of 2$"),
    ([repeat(3, 2), load(0), repeat(2, 1), load(0), load(0)],
     r"^command 2 .* ends before the body around it \(commands left: 1\), not of 2$"),
    ([repeat(2, 2), load(0, offset=64), params(508)],
     r"^command 2 \(control.params.*\) faults: rows; it must write parameters up to 511, not 512$"),
    ([repeat(3, 2), load(0), set_length(1), repeat(1, 1), load(0)],
     r"^command 3 .* faults: illegal; it must not be the last command of a body: let one more follow its own$"),
    ([params(0), repeat(2, 3), set_length(2, Source.HALF, 1, index=8), set_length(1, amount=1100)],
     r"^command 4 at 2 \(control.set .*half\[8\+len1\]\) faults: rows; it must read one of 512 parameters, "
     "not number 554$"),
    ([set_length(0)], "^command 0 .* faults: illegal; it must set one of length registers 1 to 15, not 0$"),
    ([set_displacement(1, 5)], "^command 0 .* it must have a source from 0 to 4, not 5$"),
    ([Command(CONTROL, {}, 3)], "^command 0 .* it must have an operation from 0 to 2, not 3$"),
    ([Command(CONTROL, {"target_reg": 1}, flags=frozenset({0}))], "^command 0 .* it must have no waits, flags, "),
])
def test_faults(commands: list[Command], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        check(*commands)


def test_units_beyond_control() -> None:
    with pytest.raises(ProgramError, match="^command 1 names unit 6; units are 0 to 5$"):
        verify(encode_program([load(0)]) + (6).to_bytes(COMMAND_BYTES, "little"), CONFIG, BASES, np.full(32, 1 << 16),
               np.zeros(16, dtype=np.int64))


def test_stores_into_the_program() -> None:
    """In its third turn a store reaches the program, which lies 32 bytes behind where it began."""
    program = [repeat(2, 3), store(0), set_displacement(0, Source.DISPLACEMENT, 0, amount=16)]
    check(*program, address=64)
    with pytest.raises(ProgramError, match="^command 5 at 1 .* stores into the program at 32"):
        check(*program, address=32)


def test_pieces_of_a_program() -> None:
    """The order that the compiler asks piece by piece knows registers, and forgets what it only tried."""
    order = Order(CONFIG, BASES, np.full(32, 1 << 16), np.zeros(16, dtype=np.int64))

    def table(*commands: Command) -> np.ndarray:
        return decode_table(encode_program(commands))

    assert order.run(table(params(0, 7), repeat(2, 3), load(0), set_length(1, Source.WORD)))[1] == FINE
    assert order.local.lengths[1] == 7
    trial = order.copy()
    assert trial.run(table(set_length(1, amount=5), load(8)))[1] == FINE
    assert (trial.local.lengths[1], order.local.lengths[1]) == (5, 7)
    assert (trial.count(Unit.LOAD), order.count(Unit.LOAD)) == (4, 3)
    place, end, races = order.copy().run(table(repeat(1, 1), set_length(2), matrix(0, BANK, 0)))
    assert (place, end, races) == (2, RACE, [(Unit.LOAD, 1)])
    assert order.copy().run(table(set_length(1), set_length(1, Source.WORD, index=9)))[:2] == (1, UNSET)
    assert order.copy().run(table(load(0), params(510)))[:2] == (1, FAULT)
