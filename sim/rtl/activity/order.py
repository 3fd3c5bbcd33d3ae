"""Statements in groups that run or rest together, in an order that changes nothing.

A group holds all statements that write one variable, so that the variable changes in one place. Beyond that, a group
is what lies in one block of the device and can run in one go.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gemmule.sim.rtl.activity.parse import Statement

__all__ = ["Group", "arrange"]

DEPTH = 6
"""Levels of the hierarchy that tell blocks apart: lanes of the vector unit, but not what is in them."""
SIZE = 6000
"""Characters of a group, without names: larger ones save tests, smaller ones rest more often."""
WHOLE = ("device", "core", "units", "matrix", "mesh")
"""A block that works as a whole or not at all."""
Block = tuple[str, ...]
_ALWAYS: Block = ("always",)


@dataclass(frozen=True)
class Group:
    """Statements that run together."""

    statements: tuple[Statement, ...]
    whole: bool
    """It belongs to the block that works as a whole."""

    @property
    def opaque(self) -> bool:
        return any(each.opaque for each in self.statements)


def _edges(statements: Sequence[Statement]) -> list[set[int]]:
    """For every statement those that must come after it."""
    after: list[set[int]] = [set() for _ in statements]
    writer: dict[str, int] = {}
    readers: defaultdict[str, set[int]] = defaultdict(set)
    for i, each in enumerate(statements):
        for name in each.keeps:
            if name in writer:
                after[writer[name]].add(i)
        for name in each.writes:
            for j in readers.pop(name, ()):
                after[j].add(i)
            if name in writer:
                after[writer[name]].add(i)
            writer[name] = i
        for name in each.keeps:
            readers[name].add(i)
        after[i].discard(i)
    return after


class _Sets:
    """Disjoint sets of numbers, each named by its smallest."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def find(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = i = self._parent[self._parent[i]]
        return i

    def join(self, numbers: Iterable[int]) -> None:
        roots = {self.find(i) for i in numbers}
        for root in roots:
            self._parent[root] = min(roots)


def _cycles(after: dict[int, set[int]]) -> list[list[int]]:
    """Strongly connected components of more than one node (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    inside: set[int] = set()
    found = []
    for root in after:
        if root in index:
            continue
        work = [(root, iter(after[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        inside.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    inside.add(other)
                    work.append((other, iter(after[other])))
                    break
                if other in inside:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    inside.difference_update(component)
                    if len(component) > 1:
                        found.append(component)
    return found


def _block(statements: Iterable[Statement]) -> Block | None:
    """Where the first of their variables that has a place lies."""
    for each in statements:
        if each.opaque:
            return _ALWAYS
    for each in statements:
        for name in sorted(each.writes):
            if found := re.search(r"(?:^|_)gemmule_tb__DOT__(\w+)__DOT__", name):
                path = tuple(found[1].split("__DOT__"))
                return WHOLE if path[:len(WHOLE)] == WHOLE else path[:DEPTH]
    return None


def _size(statements: Iterable[Statement]) -> int:
    return sum(len(re.sub(r"gemmule_tb\w*|\s+", "", each.text)) for each in statements)


def arrange(statements: Sequence[Statement]) -> list[Group]:
    """Groups in the order in which they run, their statements in the order that they had."""
    sets = _Sets(len(statements))
    writers: defaultdict[str, list[int]] = defaultdict(list)
    for i, each in enumerate(statements):
        for name in each.writes:
            writers[name].append(i)
    for places in writers.values():
        sets.join(places)
    if opaque := [i for i, each in enumerate(statements) if each.opaque]:
        sets.join(opaque)
    edges = _edges(statements)

    def joined() -> dict[int, set[int]]:
        after: dict[int, set[int]] = {sets.find(i): set() for i in range(len(statements))}
        for i, others in enumerate(edges):
            after[sets.find(i)] |= {sets.find(j) for j in others} - {sets.find(i)}
        return after

    for component in _cycles(joined()):
        sets.join(component)
    after = joined()
    members: defaultdict[int, list[int]] = defaultdict(list)
    for i in range(len(statements)):
        members[sets.find(i)].append(i)
    blocks = {node: _block([statements[i] for i in members[node]]) for node in after}
    for _ in range(4):  # what has no place of its own is where its readers are
        for node, others in after.items():
            if blocks[node] is None:
                blocks[node] = next((blocks[other] for other in sorted(others) if blocks[other] is not None), None)
    sizes = {node: _size(statements[i] for i in members[node]) for node in after}
    return [
        Group(tuple(statements[i] for i in sorted(i for node in group for i in members[node])), block == WHOLE)
        for block, group in _schedule(after, blocks, sizes, members)]


def _schedule(after: dict[int, set[int]], blocks: dict[int, Block | None], sizes: dict[int, int],
              members: dict[int, list[int]]) -> list[tuple[Block | None, list[int]]]:
    """Go on in one block while something of it can run, then in the one where most can."""
    waits = dict.fromkeys(after, 0)
    for others in after.values():
        for other in others:
            waits[other] += 1
    ready: defaultdict[Block | None, list[int]] = defaultdict(list)
    for node, count in waits.items():
        if count == 0:
            ready[blocks[node]].append(node)
    groups = []
    while ready:
        block = max(ready, key=lambda block: (sum(sizes[node] for node in ready[block]), block or ()))
        queue = sorted(ready.pop(block), key=lambda node: members[node][0])
        group, size = [], 0
        while queue and (size < SIZE or block == WHOLE):
            node = queue.pop(0)
            group.append(node)
            size += sizes[node]
            new: list[int] = []
            for other in after[node]:
                waits[other] -= 1
                if waits[other] == 0:
                    (new if blocks[other] == block else ready[blocks[other]]).append(other)
            queue[:0] = sorted(new, key=lambda node: members[node][0])
        if queue:
            ready[block] = queue
        groups.append((block, group))
    return groups
