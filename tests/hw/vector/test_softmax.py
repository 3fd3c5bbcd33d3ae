# amaranth: UnusedElaboratable=no
"""Vector unit: softmax in pieces, with masks, of 16 bits, normalised; rows scaled by their own maximum."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

from gemmule.isa import RequantFlag as R
from gemmule.isa import SoftmaxFlag as S
from gemmule.isa import Unit, VOp, legal_flags
from gemmule.numerics import softmax
from gemmule.numerics.online import online_softmax

from ...thinned import some, thinned
from .bench import make, operations, play, scale, shape, small
from .reference import Device
from .trace import Command

SOFTMAX = (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)


def bits(*flags: S) -> int:
    return sum(1 << flag for flag in flags)


@pytest.mark.parametrize(("comparison_modes", "part"), thinned([False, True], [0, 1]))
def test_every_legal_combination(comparison_modes: bool, part: int) -> None:
    """Of all sets of flags of the three operations every other one, on the contexts that the commands before left."""
    cases = [(op, flags) for op in SOFTMAX for size in range(7) for flags in combinations(range(8), size)
             if legal_flags(Unit.VECTOR, op, sum(1 << f for f in flags))]
    assert len(cases) == 3 * 4 + 3 * 16 + 3 * 2  # no mask, CAUSAL or TREE, times the other flags

    def commands(device: Device) -> Iterator[Command]:
        chosen = cases[part::2]
        device.rng.shuffle(chosen)
        for op, flags in chosen:
            m, n = shape(device.rng, device.dim)
            c = make(device, op, flags, m=m, n=n) | {"mult": 3000, "shift": 32}
            c["after"] = int(device.rng.choice([0, 1, 5, 30]))
            yield scale(device, c)

    play(small(4, 2, comparison_modes=comparison_modes), 111, commands)


def split(c: Command, dim: int, parts: int) -> list[Command]:
    """The command in pieces of whole column groups: the same rows of memory, ``after`` columns behind each."""
    groups = -(-c["n"] // dim)
    edges = [groups * i // parts for i in range(parts)] + [groups]
    pieces = []
    for low, high in zip(edges, edges[1:]):
        n = min(high * dim, c["n"]) - low * dim
        pieces.append(c | {
            "n": n, "after": c["n"] - low * dim - n, "src0": c["src0"] + low * c["src0_stride"],
            "dst": c["dst"] + low * c["dst_stride"]})
    return pieces


def in_pieces(c: Command, op: VOp, dim: int, parts: int, mask: int, wide: int) -> Iterator[Command]:
    """One pass over the pieces, with CONTINUE and MORE where the operation has them."""
    pieces = split(c, dim, parts)
    for i, piece in enumerate(pieces):
        flags = mask | wide
        if op is VOp.SOFTMAX_MAX:
            flags = mask | (bits(S.CONTINUE) if i else 0)
        elif op is VOp.SOFTMAX_EXP:
            flags |= (bits(S.CONTINUE) if i else 0) | (bits(S.MORE) if i < len(pieces) - 1 else 0)
        yield piece | {"op": int(op), "flags": flags}


@pytest.mark.parametrize("mask", some([bits(S.CAUSAL), bits(S.TREE), 0]))
def test_pieces_are_one_piece(mask: int) -> None:
    """Maximum, sum, weights, reciprocal and normalised weights do not depend on where the row is cut."""
    def commands(device: Device) -> Iterator[Command]:
        dim = device.dim
        for parts, m, n, wide in ((2, 5, 11, 0), (3, 9, 12, bits(S.WIDE)), (4, 13, 21, 0), (2, 1, 5, bits(S.WIDE))):
            whole = scale(device, make(device, VOp.SOFTMAX_MAX, m=m, n=n)) | {"after": 0, "mult": 3000, "shift": 32}
            whole["src1"] = int(device.rng.integers(0, 400))
            groups = -(-n // dim)
            area = slice(whole["dst"], whole["dst"] + groups * whole["dst_stride"])
            seen = []
            for count in (1, parts):
                context = count > 1
                for op in SOFTMAX:
                    device.spm[area] = 0
                    yield from in_pieces(whole | {"context": int(context)}, op, dim, count, mask, wide)
                    seen.append(device.spm[area].copy())
            assert all((one == several).all() for one, several in zip(seen[:3], seen[3:]))
            assert seen[1].any()
            assert (device.maximum[0, :m] == device.maximum[1, :m]).all()
            assert (device.R[0, :m] == device.R[1, :m]).all()
            assert (device.L[0, :m] == device.L[1, :m]).all()

    play(small(4, 2), 113, commands)


@pytest.mark.parametrize("mask", some([S.TREE, S.CAUSAL]))
def test_masked_columns_have_no_influence(mask: S) -> None:
    """Other scores in masked columns (and beyond n): the same weights, sums and maxima, and weights of 0 there."""
    def commands(device: Device) -> Iterator[Command]:
        for m, n in ((4, 10), (9, 9), (16, 7), (3, 14)):
            c = scale(device, make(device, VOp.SOFTMAX_MAX, [mask], m=m, n=n)) | {
                "after": 0, "mult": 3000, "shift": 32, "context": 0}
            c["src1"] = int(device.rng.integers(0, 400))
            tokens = np.arange(n) - (n - m)
            if mask is S.CAUSAL:
                hidden = tokens > np.arange(m)[:, None]
            else:
                bitmap = np.unpackbits(device.spm[c["src1"]:c["src1"] + m], axis=1, bitorder="little")
                hidden = (tokens >= 0) & (bitmap[:, np.maximum(tokens, 0)] == 0)
            found = []
            for change in (False, True):
                if change:
                    for row, column in zip(*np.nonzero(hidden)):
                        at = c["src0"] + column // device.dim * c["src0_stride"] + row
                        device.acc[at, column % device.dim] = device.rng.choice([(1 << 31) - 1, -(1 << 31)])
                    tail = n % device.dim
                    if tail:
                        device.acc[c["src0"] + n // device.dim * c["src0_stride"] + np.arange(m), tail:] = (1 << 31) - 1
                yield c
                for op in SOFTMAX[1:]:
                    yield c | {"op": int(op)}
                    found.append(device.matrix(device.spm, c["dst"], c["dst_stride"], m, n).copy())
                found.append(np.stack([device.maximum[0, :m], device.R[0, :m], device.L[0, :m]]))
            assert all((a == b).all() for a, b in zip(found[:3], found[3:]))
            assert hidden.any()
            assert not found[0][hidden].any()
            assert not found[1][hidden].any()

    play(small(4, 1), 127, commands)


@pytest.mark.parametrize("dim", some([2, 8, 16]))
def test_dims(dim: int) -> None:
    """TREE over several groups and pieces, WIDE and normalised weights, own scale."""
    def commands(device: Device) -> Iterator[Command]:
        for m, n, after in ((9, 2 * dim + 1, 0), (16, dim, dim - 1), (5, 2 * dim, 4))[:1 if dim > 8 else 3]:
            c = scale(device, make(device, VOp.SOFTMAX_MAX, [S.TREE], m=m, n=n))
            c |= {"after": after, "mult": 3000, "shift": 32, "src1": 7, "context": 0}
            for op, flags in ((SOFTMAX[0], 0), (SOFTMAX[1], bits(S.WIDE)), (SOFTMAX[2], 0), (SOFTMAX[2], bits(S.WIDE))):
                yield c | {"op": int(op), "flags": bits(S.TREE) | flags}
            yield c | {"op": int(VOp.ABSMAX), "flags": 0}
            yield make(device, VOp.REQUANT, [R.ROW], m=m, n=3) | {"context": 1, "shift": 3, "mult": 40000}

    play(small(dim, 2), 131, commands)


def test_sum_in_context_wraps_and_stays() -> None:
    """MORE leaves the reciprocal alone, an end leaves the sum alone; the sum wraps at 37 bits."""
    def commands(device: Device) -> Iterator[Command]:
        c = scale(device, make(device, VOp.SOFTMAX_MAX, m=3, n=6)) | {"mult": 3000, "shift": 32, "context": 1}
        yield c
        for flags in ([], [S.MORE], [S.CONTINUE], [S.CONTINUE], [S.CONTINUE, S.MORE], [S.CONTINUE]):
            before = device.R[1].copy(), device.total[1].copy()
            yield c | {"op": int(VOp.SOFTMAX_EXP), "flags": bits(*flags)}
            changed = (device.R[1] != before[0]).any(), (device.total[1] != before[1]).any()
            assert changed[1] == (S.MORE in flags)
            assert not changed[0] or S.MORE not in flags

    play(small(4, 1), 137, commands)


@pytest.mark.parametrize(("dim", "dividers"), some([(4, 16), (2, 1), (8, 3)]))
def test_largest_magnitude(dim: int, dividers: int) -> None:
    """Every bit length of the maximum, 0 and 2**31 included; both contexts, in both orders; columns beyond n."""
    values = [0, 1, 2, 3, *(1 << k for k in range(2, 31)), *((1 << k) - 1 for k in range(3, 32)), -1, -(1 << 31)]

    def commands(device: Device) -> Iterator[Command]:
        for at in range(0, len(values), 16):
            m = min(16, len(values) - at)
            n = [1, dim - 1, dim + 1, 3 * dim][at // 16 % 4]
            c = make(device, VOp.ABSMAX, m=m, n=n)
            rows = device.acc[c["src0"]:c["src0"] + -(-n // dim) * c["src0_stride"]]
            rows[:] = -(1 << 31)
            for i, value in enumerate(values[at:at + m]):
                smaller = abs(value) + (value > 0)
                row = device.rng.integers(-abs(value), max(smaller, 1), n)
                row[device.rng.integers(n)] = value
                for g in range(-(-n // dim)):
                    part = row[g * dim:(g + 1) * dim]
                    device.acc[c["src0"] + g * c["src0_stride"] + i, :len(part)] = part
            context = at // 16 % 2
            yield c | {"context": context}
            assert [int(r) for r in device.L[context, :m]] == [abs(v).bit_length() for v in values[at:at + m]]
            for read in range(context, context + 2):
                for shift in (0, 12):
                    use = scale(device, make(device, VOp.REQUANT, [R.ROW, R.WIDE], m=m, n=n))
                    yield use | {"context": read, "shift": shift, "mult": 65535 - shift}

    config = small(dim, dividers)
    play(type(config)(**{**vars(config), "stat_contexts": 4}), 139, commands)


@pytest.mark.parametrize(("dim", "mask", "kind"), some([(4, 0, 0), (8, bits(S.TREE), 1), (4, bits(S.CAUSAL), 2)], 2))
def test_online_blocks(dim: int, mask: int, kind: int) -> None:
    """Blocks of columns in one pass: maximum, weights, and the context rows rescaled; as ``online_softmax``."""
    def commands(device: Device) -> Iterator[Command]:
        for parts, m, n in ((2, 5, 2 * dim + 1), (3, 16, 3 * dim), (1, 3, dim - 1)):
            whole = make(device, VOp.SOFTMAX_MAX, m=m, n=n) | {
                "after": 0, "mult": 3000, "shift": 16, "src0": 0, "context": 1, "period": kind,
                "src1": int(device.rng.integers(0, 400))}
            groups = -(-n // dim)
            # scores rise from block to block, some rows by nothing, some by more than 40 octaves
            rise = device.rng.choice([0, 1 << 14, 1 << 17, 1 << 22], (m, 1))
            for g in range(groups):
                at = g * whole["src0_stride"]
                device.acc[at:at + m] = g * rise + device.rng.integers(-(1 << 14), 1 << 14, (m, dim)) - 2 * rise
            keys = device.matrix(device.acc, 0, whole["src0_stride"], m, n)
            t = softmax.scores(keys, 3000, 16)
            if mask == bits(S.CAUSAL):
                seen = np.arange(n) < softmax.visible(m, n, True)[:, None]
            elif mask:
                seen = softmax.tree_mask(device.spm[whole["src1"]:whole["src1"] + m], m, n)
            else:
                seen = np.ones((m, n), dtype=bool)
            v = device.rng.integers(-128, 128, (n, dim))
            at, total = 128, np.zeros((m, dim), dtype=np.int64)
            pieces = split(whole, dim, parts)
            for i, piece in enumerate(pieces):
                onward = bits(S.ONLINE) | (bits(S.CONTINUE) if i else 0)
                yield piece | {"flags": mask | onward}
                if i:
                    device.acc[at:at + m] = total
                    yield make(device, VOp.RESCALE, m=m, n=dim) | {"src0": at, "dst": at, "context": 1}
                    total = device.acc[at:at + m].copy()
                more = bits(S.MORE) if i < len(pieces) - 1 else 0
                yield piece | {"op": int(VOp.SOFTMAX_EXP), "flags": mask | onward | more}
                low = n - piece["n"] - piece["after"]
                weights = device.matrix(device.spm, piece["dst"], piece["dst_stride"], m, piece["n"])
                total = total + weights.astype(np.int64) @ v[low:low + piece["n"]]
            if parts * dim == n:
                context, reciprocal, length = online_softmax(t, v, seen, dim, kind=kind)
                assert (total == context).all()
                assert (device.R[1, :m] == reciprocal).all()
                assert (device.L[1, :m] == length).all()
                assert len(set(device.rise[1, :m].tolist())) > 2

    play(small(dim, 2), 149, commands)


def test_rise_of_any_maximum() -> None:
    """Maxima of SOFTMAX_MAX without ONLINE are no whole octaves; rises of 0, 1, 39, 40 and more; the highest octave."""
    def commands(device: Device) -> Iterator[Command]:
        highest = (1 << 23) - 1
        befores = [-1024 * 41, -1024 * 40 - 1, -1024 * 40, -1024 * 39, -1024 * 38 + 1, -1025, -1024, -1023, -1, 0, 1,
                   1023, 1024, 8191 * 1024 - 1, highest, -(1 << 23)]
        for after in (-1, 0, 1, -1023, -1024, -1025, 8190 * 1024 + 1, 8191 * 1024, 8191 * 1024 + 1, highest):
            c = make(device, VOp.SOFTMAX_MAX, m=16, n=1) | {"mult": 1, "shift": 0, "context": 0}
            for value, flags in ((np.array(befores), []), (after, [S.CONTINUE, S.ONLINE])):
                device.acc[c["src0"]:c["src0"] + 16, 0] = value
                yield c | {"flags": bits(*flags)}
            exact = np.minimum(-(-after // 1024), 8191) * 1024
            assert (device.maximum[0] == np.maximum(befores, exact)).all()
            yield make(device, VOp.SOFTMAX_EXP, [S.CONTINUE, S.ONLINE, S.MORE], m=16, n=5) | {"context": 0}
            yield scale(device, make(device, VOp.RESCALE, m=16, n=2 * device.dim - 1)) | {"context": 0}
        yield c | {"flags": 0}  # leaves the rises alone
        yield make(device, VOp.RESCALE, m=16, n=2) | {"context": 0}

    play(small(4, 1), 151, commands)


def test_rescale_ends_before_the_next_command() -> None:
    """Rows on their way are no other command's: commands follow RESCALE without a pause."""
    def commands(device: Device) -> Iterator[Command]:
        for op in operations(True):
            for m, n in ((1, 1), (7, 9)):
                yield make(device, VOp.RESCALE, m=m, n=n)
                yield make(device, op, m=m, n=n)

    play(small(4, 2), 157, commands)
