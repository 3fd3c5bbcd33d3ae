"""The order of commands by the book: every earlier command against every later one, with sets of rows. Slow."""

from collections.abc import Sequence

import numpy as np

from gemmule.config import Config
from gemmule.isa import CONTROL, TABLE_FIELDS, MatrixFlag, Unit
from gemmule.resolve import OUT
from gemmule.sim.stream import stream_of
from gemmule.sim.verify.access import Access, accesses, common

__all__ = ["first_race"]

F = {name: i for i, name in enumerate(TABLE_FIELDS)}


def first_race(image: bytes, config: Config, bases: np.ndarray, limits: np.ndarray,
               lengths: np.ndarray) -> tuple[int, int] | None:
    """(later, earlier) of the first command that races, with the latest it races with of the first such unit.

    Every command must be legal by itself. Commands are numbered as they run, control commands too.
    """
    stream = stream_of(image, config, bases, limits, lengths)
    table, out = stream.table[stream.places], stream.resolved
    found = [accesses(row, one, config) if one[OUT["unit"]] != CONTROL else [] for row, one in zip(table, out)]
    members: list[list[int]] = [[] for _ in Unit]
    before: list[set[int]] = []  # what had surely finished when a command issued
    dataflow, guarded = 0, False
    for b, (row, one) in enumerate(zip(table, out)):
        if one[OUT["unit"]] == CONTROL:
            before.append(set())
            continue
        unit, flags, real = int(one[OUT["unit"]]), int(one[OUT["flags"]]), not one[OUT["zero"]]
        own, predicate = members[unit], bool(row[F["predicate"]])
        stationary = flags >> MatrixFlag.OUTPUT_STATIONARY & 1
        alone = not real or unit == Unit.MATRIX and guarded
        if not predicate:
            alone = alone or unit == Unit.MATRIX and stationary != dataflow
        done = set(before[own[-1]]) if own else set()
        waited = [members[u][-int(row[F["wait_load"] + u])] for u in Unit
                  if 0 < row[F["wait_load"] + u] <= len(members[u])]
        if unit in (Unit.VECTOR, Unit.SELECT) or alone:
            done |= set(own)
        for a in waited:
            done |= before[a] | set(members[int(out[a, OUT["unit"]])][:members[int(out[a, OUT["unit"]])].index(a) + 1])
        for a in list(done):
            done |= before[a]
        for u in Unit:
            for a in reversed(members[u]):
                if a not in done and _race(found[a], found[b], table[a], out[a], row, one, config):
                    return b, a
        if unit == Unit.MATRIX:
            guarded, dataflow = predicate, stationary if real else dataflow
        members[unit].append(b)
        before.append(done)
    return None


def _race(theirs: Sequence[Access], ours: Sequence[Access], raw: np.ndarray, first: np.ndarray, row: np.ndarray,
          one: np.ndarray, config: Config) -> bool:
    unit, same_unit = int(one[OUT["unit"]]), first[OUT["unit"]] == one[OUT["unit"]]
    in_order = same_unit and unit in (Unit.LOAD, Unit.STORE)
    if same_unit and unit == Unit.MATRIX:
        stride = raw[F["c_stride"]] == row[F["c_stride"]] or first[OUT["n"]] <= config.dim
        in_order = bool(first[OUT["row2"]] == one[OUT["row2"]] and stride)
    for x in theirs:
        for y in ours:
            if x.memory != y.memory or x.memory.private or not (x.write or y.write):
                continue
            if in_order:
                continue
            if common(x.spans, y.spans):
                return True
    return False
