"""A netlist under an event-driven simulator: every change of every net, glitches included, at the gates' own delays.

A gate's output follows its inputs after its delay; a change that is taken back before is none (inertial delay).
Flip-flops sample at the rising edge of the one clock. Flip-flops and memories begin as 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numba import njit

from benchmarks.energy.netlist import MOST_INPUTS, Memory, Netlist

__all__ = ["Gates"]

SLOTS = 8192
"""Steps of a period in which events may be: more than the slowest path has."""
INPUT_STEP = 5
"""Step in which inputs change."""
MACRO_STEP = 250
"""Step in which memories show what they read: 2.5 ns."""


@njit(cache=True)
def _settle(values, changes, heads, following, event_gate, event_value, event_stamp, free, stamps, pending, inputs,
            function, output, delay, fan_start, fan_gate):  # type: ignore[no-untyped-def]
    """Run all events of a period; gates are numbered first, then what drives nets from outside (``event_gate`` < 0)."""
    last = 0
    for slot in range(len(heads)):
        event = heads[slot]
        heads[slot] = -1
        while event >= 0:
            after = following[event]
            gate, value = event_gate[event], event_value[event]
            live = True
            if gate >= 0:
                live = stamps[gate] == event_stamp[event]
                net = output[gate]
                if live:
                    pending[gate] = -1
            else:
                net = -1 - gate
            if live and values[net] != value:
                last = slot
                values[net] = value
                changes[net, value] += 1
                for f in range(fan_start[net], fan_start[net + 1]):
                    reader = fan_gate[f]
                    index = 0
                    for i in range(MOST_INPUTS):
                        index |= values[inputs[reader, i]] << i
                    new = function[reader] >> index & 1
                    old = values[output[reader]]
                    if pending[reader] >= 0:
                        if new == pending[reader]:
                            continue
                        stamps[reader] += 1  # taken back
                        pending[reader] = -1
                    if new != old:
                        at = slot + delay[reader]
                        stamps[reader] += 1
                        pending[reader] = new
                        event_gate[free], event_value[free] = reader, new
                        event_stamp[free], following[free] = stamps[reader], heads[at]
                        heads[at] = free
                        free += 1
            event = after
    return last


@njit(cache=True)
def _clock(values, flip_flops, heads, following, event_gate, event_value, free):  # type: ignore[no-untyped-def]
    """Flip-flops whose data differ from their output."""
    for i in range(len(flip_flops)):
        data, net, delay = flip_flops[i]
        if values[data] != values[net]:
            event_gate[free], event_value[free], following[free] = -1 - net, values[data], heads[delay]
            heads[delay] = free
            free += 1
    return free


@njit(cache=True)
def _number(values, nets):  # type: ignore[no-untyped-def]
    found = 0
    for i in range(len(nets)):
        found |= values[nets[i]] << i
    return found


@njit(cache=True)
def _memory(values, content, transparent, rd_addr, rd_data, rd_en, rd_srst, wr_addr, wr_data, wr_en, shown, used,
            last_address, heads, following, event_gate, event_value, free):  # type: ignore[no-untyped-def]
    """A memory's clock edge; counts accesses in ``used`` (reads, writes).

    A read counts when its address, or what is there, is another: some ports are enabled in every cycle.
    """
    rows, width = content.shape
    for p in range(len(rd_addr)):
        if not values[rd_en[p, 0]]:
            continue
        address = _number(values, rd_addr[p])
        if address != last_address[p]:
            used[0] += 1
            last_address[p] = address
        for b in range(width):
            value = content[address, b] if address < rows else 0
            if transparent:
                for w in range(len(wr_addr)):
                    if values[wr_en[w, b]] and _number(values, wr_addr[w]) == address:
                        value = values[wr_data[w, b]]
            if values[rd_srst[p, 0]]:
                value = 0
            shown[p, b] = value
    for w in range(len(wr_addr)):
        any_bit = 0
        address = _number(values, wr_addr[w])
        for b in range(width):
            if values[wr_en[w, b]]:
                any_bit = 1
                if address < rows:
                    content[address, b] = values[wr_data[w, b]]
        used[1] += any_bit
        if any_bit:
            for p in range(len(rd_addr)):
                if last_address[p] == address:
                    last_address[p] = -1  # what is read again is another word
    for p in range(len(rd_addr)):
        for b in range(width):
            net = rd_data[p, b]
            if net > 1 and values[net] != shown[p, b]:
                event_gate[free], event_value[free], following[free] = -1 - net, shown[p, b], heads[MACRO_STEP]
                heads[MACRO_STEP] = free
                free += 1
    return free


class Gates:
    """One device of gates."""

    def __init__(self, netlist: Netlist) -> None:
        self.netlist = netlist
        self.values = np.zeros(netlist.nets, dtype=np.int64)
        self.values[netlist.one] = 1
        self.changes = np.zeros((netlist.nets, 2), dtype=np.int64)
        """Falls and rises of every net since the last :meth:`forget`."""
        self.cycles = 0
        self.latest = 0
        """The last step in which any net changed."""
        gates = len(netlist.output)
        flat = netlist.inputs.ravel()
        order = np.argsort(flat, kind="stable")
        self._fan_start = np.searchsorted(flat[order], np.arange(netlist.nets + 1))
        self._fan_gate = (order // MOST_INPUTS).astype(np.int64)
        self._fan_start[:3] = len(flat) - len(flat) + self._fan_start[2]  # constants never change
        size = 1 << 24
        self._pool = [np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int8),
                      np.zeros(size, dtype=np.int64)]
        self._heads = np.full(SLOTS, -1, dtype=np.int64)
        self._stamps, self._pending = np.zeros(gates, dtype=np.int64), np.full(gates, -1, dtype=np.int8)
        self._content = [np.zeros((m.rows, m.width), dtype=np.int64) for m in netlist.memories]
        self._shown = [np.zeros(m.ports["RD_DATA"].shape, dtype=np.int64) for m in netlist.memories]
        self._last = [np.full(len(m.ports["RD_DATA"]), -1, dtype=np.int64) for m in netlist.memories]
        self.used = np.zeros((len(netlist.memories), 2), dtype=np.int64)
        """Reads and writes of each memory."""
        self._start()

    def _start(self) -> None:
        """Every gate shows what its inputs say, whatever order that takes."""
        n = self.netlist
        for _ in range(2000):
            index = sum(self.values[n.inputs[:, i]] << i for i in range(MOST_INPUTS))
            new = n.function >> index & 1
            if (self.values[n.output] == new).all():
                return
            self.values[n.output] = new
        raise ValueError("the netlist does not come to rest")

    def read(self, port: str) -> int:
        """An output as a number."""
        return sum(int(value) << i for i, value in enumerate(self.values[self.netlist.ports[port]]))

    def forget(self) -> None:
        """Begin to count."""
        self.changes[:] = 0
        self.used[:] = 0
        self.cycles = self.latest = 0

    def step(self, inputs: Mapping[str, int]) -> None:
        """A clock edge, then these inputs, until all is at rest."""
        n, following, event_gate, event_value, event_stamp = self.netlist, *self._pool
        rest = (self._heads, following, event_gate, event_value)
        free = _clock(self.values, n.flip_flops, *rest, 0)
        for number, memory in enumerate(n.memories):
            free = self._edge(number, memory, rest, free)
        for port, value in inputs.items():
            for i, net in enumerate(n.ports[port]):
                if self.values[net] != value >> i & 1:
                    event_gate[free], event_value[free], following[free] = (
                        -1 - net, value >> i & 1, self._heads[INPUT_STEP])
                    self._heads[INPUT_STEP] = free
                    free += 1
        last = _settle(self.values, self.changes, self._heads, following, event_gate, event_value, event_stamp, free,
                       self._stamps, self._pending, n.inputs, n.function, n.output, n.delay, self._fan_start,
                       self._fan_gate)
        self.latest = max(self.latest, last)
        self.cycles += 1

    def _edge(self, number: int, memory: Memory, rest: tuple[np.ndarray, ...], free: int) -> int:
        p = memory.ports
        return int(_memory(
            self.values, self._content[number], memory.rows == 32, p["RD_ADDR"], p["RD_DATA"], p["RD_EN"],
            p["RD_SRST"], p["WR_ADDR"], p["WR_DATA"], p["WR_EN"], self._shown[number], self.used[number],
            self._last[number], *rest, free))
