"""Programs of bodies: those that programs of gemmule fuzz do not have are long enough, and turn often enough."""

from gemmule.config import load_config
from gemmule.control import MAX_DEPTH
from gemmule.isa import CONTROL, COp
from gemmule.sim.mutants.bodies import LONG, TURNS, often

CONFIG = load_config("tiny")


def test_bodies_that_are_fetched_for_every_turn():
    commands = often(CONFIG)
    repeats = [(at, command.fields["body"], command.fields["times_cap"]) for at, command in enumerate(commands)
               if command.unit == CONTROL and command.op == COp.REPEAT]
    assert all(body > CONFIG.fetch_queue for _, body, _ in repeats)
    assert all(at + body < len(commands) for at, body, _ in repeats)
    assert {bit for bit in range(16) for _, body, _ in repeats if body >> bit & 1} >= set(range(6, LONG))
    assert max(turns for *_, turns in repeats) == TURNS
    nested = [(at, body) for at, body, _ in repeats[1:1 + MAX_DEPTH]]
    assert all(at + body > inner + its for (at, body), (inner, its) in zip(nested, nested[1:], strict=False))
