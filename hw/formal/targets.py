"""Every target, in the order in which commands and data pass the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gemmule.config import Config
from gemmule.hw.formal.bench import Bench
from gemmule.hw.formal.bursts import bursts
from gemmule.hw.formal.claims import PORTS, stream_claims
from gemmule.hw.formal.control import control, watchdog
from gemmule.hw.formal.csr import registers
from gemmule.hw.formal.dispatch import MOST, dispatch
from gemmule.hw.formal.faults import FAULTS
from gemmule.hw.formal.fetch import fetch, fetch_repeats
from gemmule.hw.formal.issue import issue
from gemmule.hw.formal.load import load_requests, load_whole
from gemmule.hw.formal.loops import loops
from gemmule.hw.formal.queue import BITS, head_queue, queue
from gemmule.hw.formal.read_arbiter import read_arbiter
from gemmule.hw.formal.store import store_reader, store_sender
from gemmule.hw.formal.target import Target
from gemmule.hw.formal.waits import LIMITS, waits

__all__ = ["TARGETS"]


def _sized(build: Callable[[Bench, int], None], size: int) -> Callable[[Bench, Config], None]:
    """A component that knows nothing of the device."""
    return lambda bench, config: build(bench, size)


def _target(name: str, unit: str, says: str, build: Callable[[Bench, Config], None], depth: int, reach: int, *,
            preset: str = "tiny", sizes: str = "", quick: bool = False) -> Target:
    return Target(name, unit, says, build, depth, reach, FAULTS[name], preset, sizes, quick)


TARGETS: Mapping[str, Target] = {target.name: target for target in (
    _target("registers", "device/csr", "AXI4-Lite, parameters, actions", registers, 3, 8),
    _target("control", "device/control", "launches, the first fault, the interrupt", control, 4, 8, quick=True),
    _target("watchdog", "device/watchdog", "silent cycles of the bus", watchdog, 4, 8, quick=True),
    _target("fetch", "command/fetch", "AXI rules, places, a program whole and in order", fetch, 3, 20),
    _target("fetch-repeats", "command/fetch", "AXI rules and places where bodies are repeated", fetch_repeats, 10, 12,
            preset="base"),
    _target("loops", "command/loops", "turns of bodies, positions", _sized(loops, 4), 3, 8,
            sizes="steps of up to 4 commands, positions of 24 bits"),
    _target("dispatch", "command/dispatch", "order, unit queues, counts", dispatch, 4, 9,
            sizes=f"a launch of {MOST} commands"),
    _target("queue", "queue", "order, no loss, no overflow, counts", _sized(queue, 3), 6, 8,
            sizes=f"3 entries of {BITS} bits", quick=True),
    _target("head-queue", "queue", "order, no loss, the next head", _sized(head_queue, 3), 6, 8,
            sizes=f"3 entries of {BITS} bits", quick=True),
    _target("waits", "command/waits", "heads wait for what they name", _sized(waits, 3), 4, 8,
            sizes=f"2 queues of 3 commands, {LIMITS[0]} and {LIMITS[1]} in flight"),
    _target("issue", "command/issue", "ports, waits, one command a cycle, counts", issue, 4, 10),
    _target("claims", "command/claims", "claims of one stream", _sized(stream_claims, 4), 6, 12,
            sizes=f"4 claims of {PORTS} ports", quick=True),
    _target("bursts", "move/bursts", "4 KiB, rows whole and in order, stable offers", bursts, 4, 10),
    _target("load-requests", "move/load", "AXI rules of reads, bursts and beats in flight", load_requests, 5, 12),
    _target("load-whole", "move/load", "a BROADCAST that waits for its writer", load_whole, 9, 9),
    _target("store-reader", "move/store_read", "what the sender relies on", store_reader, 5, 10, quick=True),
    _target("store-sender", "move/store", "AXI rules of writes, responses, finish", store_sender, 4, 10),
    _target("read-arbiter", "device/read_arbiter", "AXI rules of reads, beats to whoever asked", read_arbiter, 4, 10,
            quick=True),
)}
"""By name."""
