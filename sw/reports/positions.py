"""The cost of decoding steps as the text grows."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["by_position"]

PARTS = 8


def by_position(curves: Sequence[Sequence[Sequence[int]]]) -> list[tuple[str, list[float | None]]]:
    """Mean cycles per step of each curve in up to eight parts of the text, with a label for each part.

    A curve is a list of (tokens of the text before a step, cycles of the step). Its mean is None where it has no step.
    """
    places = [position for curve in curves for position, _ in curve]
    if not places:
        return []
    low, high = min(places), max(places) + 1
    edges = sorted({low + (high - low) * part // PARTS for part in range(PARTS + 1)})
    found = []
    for first, end in zip(edges, edges[1:]):
        means: list[float | None] = []
        for curve in curves:
            inside = [cycles for position, cycles in curve if first <= position < end]
            means.append(sum(inside) / len(inside) if inside else None)
        found.append((f"{first} to {end - 1}" if end - first > 1 else f"{first}", means))
    return found
