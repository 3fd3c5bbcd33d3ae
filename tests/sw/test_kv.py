"""Caches and pieces of passes without a device: what is moved, what is free, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.ir import Rows
from gemmule.sw.device.pieces import pieces
from gemmule.sw.kv.contiguous import ContiguousKV

ROOM = 30


class Lists:
    """Moves rows of lists, as a device would; each move costs 1."""

    def __init__(self) -> None:
        self.rows = [[-1] * ROOM, [-1] * ROOM]

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
        kept = [self.rows[sequence][position + i] for i in path]
        self.rows[sequence][position:position + len(path)] = kept
        return int(path != list(range(len(path))))

    def copy_rows(self, source: tuple[int, int], target: tuple[int, int], rows: int) -> int:
        moved = self.rows[source[0]][source[1]:source[1] + rows]
        self.rows[target[0]][target[1]:target[1] + rows] = moved
        return 1

    def gather_rows(self, sequence: int, slots: np.ndarray) -> int:
        self.rows[sequence][:len(slots)] = [self.rows[sequence][i] for i in slots]
        return 1


@pytest.mark.parametrize("seed", range(20))
def test_random_operations(seed: int) -> None:
    """The rows that are left are those of a plain list, in its order."""
    random, mover = np.random.default_rng(seed), Lists()
    caches, texts = [ContiguousKV(mover, ROOM, i) for i in range(2)], [[], []]
    for number in range(200):
        which = int(random.integers(2))
        kv, text = caches[which], texts[which]
        match random.choice(["append", "commit", "truncate", "fork", "gather", "evict"]):
            case "append" | "commit" as kind:
                new = [100 * number + i for i in range(int(random.integers(0, min(6, ROOM - len(text)) + 1)))]
                mover.rows[which][len(text):len(text) + len(new)] = new
                assert kv.append(len(new)) == 0
                if kind == "commit" and new:
                    path = np.flatnonzero(random.random(len(new)) < 0.6).tolist() or [0]
                    assert kv.commit(path) == (path != list(range(len(path))))
                    new = [new[i] for i in path]
                text += new
            case "truncate":
                del text[int(random.integers(0, len(text) + 1)):]
                assert kv.truncate(len(text)) == 0
            case "fork":
                assert kv.fork(caches[1 - which]) == bool(text)
                texts[1 - which] = list(text)
            case "gather":
                kept = np.flatnonzero(random.random(len(text)) < 0.7)
                assert kv.gather(kept) == (kept.tolist() != list(range(len(kept))))
                texts[which] = [text[i] for i in kept]
            case "evict":
                first = int(random.integers(0, len(text) + 1))
                count = int(random.integers(0, len(text) - first + 1))
                assert kv.evict(first, count) == (count > 0 and first + count < len(text))
                del text[first:first + count]
        for cache, kept_text in zip(caches, texts, strict=True):
            assert cache.length == len(kept_text)
            assert mover.rows[cache.sequence][:cache.length] == kept_text


def test_refused() -> None:
    kv = ContiguousKV(Lists(), 4)
    kv.append(3)
    for call, rule in ((lambda: kv.append(2), "room for 1 more rows, not 2"),
                       (lambda: kv.truncate(4), "0 to as many, not 4"),
                       (lambda: kv.evict(2, 2), "within 0 to 3, not 2 to 4"),
                       (lambda: kv.gather(np.array([1, 1])), "must rise"),
                       (lambda: kv.gather(np.array([3])), "from 0 to 2, not 3 to 3")):
        with pytest.raises(ValueError, match=rule):
            call()
    assert kv.length == 3


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_the_rows_in_order(seed: int) -> None:
    """Every row once, behind those before it; sequences without rows get one that counts for nobody."""
    random = np.random.default_rng(seed)
    batch, most = int(random.integers(1, 5)), int(random.integers(1, 5))
    present = [i for i in range(batch) if random.random() < 0.7] or [batch - 1]
    counts, cached = random.integers(1, 12, batch), random.integers(0, 9, batch).tolist()
    tokens = [random.integers(0, 99, counts[i]).tolist() for i in present]
    made = Rows.ragged(tokens, [cached[i] for i in present])
    rows = Rows(tokens=made.tokens, positions=made.positions, mask=made.mask,
                sequences=np.array(present)[made.sequences])
    seen = np.zeros(len(rows), dtype=int)
    for piece in pieces(rows, most, batch, cached):
        assert sorted(set(piece.rows.sequences.tolist())) == list(range(batch))
        for sequence in range(batch):
            own = np.flatnonzero(piece.rows.sequences == sequence)
            index = piece.index[own]
            first = cached[sequence] + piece.before[sequence]
            assert 1 <= len(own) <= most
            assert piece.rows.positions[own].tolist() == list(range(first, first + len(own)))
            assert np.array_equal(piece.rows.mask[np.ix_(own, own)], np.tri(len(own), dtype=bool))
            if (index >= 0).any():
                assert piece.rows.tokens[own].tolist() == rows.tokens[index].tolist()
                seen[index] += 1
    assert (seen == 1).all()
