"""What a device must do and no program reaches: registers, interrupt, stalls, errors, watchdog, resets, counts.

A check runs on a device and returns what is wrong, or nothing. It fails by an :class:`RtlError` where the device hangs,
breaks a rule of AXI or of its claims, or takes the simulator with it. The device is one with leaps
(``hw/flow/leaps.py``).
"""

from __future__ import annotations

from gemmule.config import Config
from gemmule.sim.mutants.addresses import address_checks
from gemmule.sim.mutants.bodies import body_checks
from gemmule.sim.mutants.bus import bus_checks
from gemmule.sim.mutants.corners import corner_checks
from gemmule.sim.mutants.counts import count_checks
from gemmule.sim.mutants.crossings import crossing_checks
from gemmule.sim.mutants.fields import field_checks
from gemmule.sim.mutants.functions import function_checks
from gemmule.sim.mutants.leaps import leap_checks
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.registers import register_checks
from gemmule.sim.mutants.setup import Setup
from gemmule.sim.mutants.singles import single_checks
from gemmule.sim.mutants.sums import sum_checks
from gemmule.sim.mutants.watchdog import watchdog_checks

__all__ = ["directed"]

FIRST = ("leaps of silence", "leaps to a limit", "leaps over commands", "prompt", "behind an error",
         "brinks", "programs", "nothing due", "listed", "held", "scaled", "nested", "often")
"""Brief checks that notice what others do not."""
SECOND = "sums of resolve", "lengths", "leaps over units' commands", "many commands"
"""Longer ones."""


def directed(config: Config, seed: int, commands: int = 60) -> list[list[Check]]:
    """All of them, in this order or any other, in three groups: what notices most of those that programs do not notice
    comes first."""
    setup, groups = Setup.make(config, seed, commands), ([], [], [])  # type: Setup, tuple[list[Check], ...]
    for check in (*register_checks(setup), *bus_checks(setup), *address_checks(setup), *watchdog_checks(setup),
                  *corner_checks(setup, seed), *leap_checks(setup), *body_checks(setup, seed),
                  *single_checks(setup, seed), *sum_checks(setup), *count_checks(setup, seed), *function_checks(setup),
                  *field_checks(setup, seed), *crossing_checks(setup, seed)):
        groups[0 if check.name in FIRST else 1 if check.name in SECOND else 2].append(setup.fresh(check))
    return list(groups)
