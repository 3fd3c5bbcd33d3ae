"""Paged caches: sequences of one pool that grow, share, branch and end; answers are those of caches of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.config import load_config
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.runtime import PAGE, LoadedModel
from gemmule.sw.kv.paged import PagedKV, PagePool
from tests.compiler.integer_networks import Sizes, random_network

SEED = 20261124
SIZES = Sizes(family="llama", hidden=24, inner=40, heads=4, kv_heads=2, head_dim=24, layers=2, vocab=61, positions=60)


def _model(network: Network, pool: int, rows: int = 4) -> LoadedModel:
    device = load_config("base")
    program = compile_network(network, device, rows=rows, tokens=True, pool=pool)
    return LoadedModel("target", program, program.fill(network), open_device("model", device, program.size))


def _golden(network: Network, tokens: list[int]) -> list[int]:
    """Greedy token behind each token of a whole text."""
    logits = IntegerInterpreter(network).forward(Rows.chain(tokens), Cache(network.graph))
    return logits.argmax(axis=1).tolist()


def test_sequences_share_what_they_begin_with() -> None:
    network = random_network(SIZES, SEED)
    model, random = _model(network, 10 * PAGE), np.random.default_rng(SEED)
    assert model.pages
    first = [int(token) for token in random.integers(0, SIZES.vocab, 20)]
    kv, other = model.kv(), model.kv()
    assert model.forward(Rows.chain(first), kv=kv).argmax == _golden(network, first)
    assert kv.fork(other) == 0
    assert model.pages.free_pages == 9  # one page holds both
    more = {id(cache): list(first) for cache in (kv, other)}
    for _ in range(6):
        for cache in (kv, other):
            text, count = more[id(cache)], int(random.integers(1, 5))
            text += [int(token) for token in random.integers(0, SIZES.vocab, count)]
            found = model.forward(Rows.chain(text[-count:], len(text) - count), kv=cache).argmax
            assert found == _golden(network, text)[-count:]
    kv.truncate(0)
    assert model.forward(Rows.chain([5], len(more[id(other)])), kv=other).argmax == _golden(
        network, [*more[id(other)], 5])[-1:]
    other.truncate(0)
    assert model.pages.free_pages == 10


def test_an_accepted_path_stays_where_it_is() -> None:
    network = random_network(SIZES, SEED)
    model = _model(network, 4 * PAGE)
    kv, launches = model.kv(), []
    for _ in range(3):
        at = kv.length
        out = model.forward(Rows.tree([1, 2, 3, 4], [-1, 0, 0, 2], at), kv=kv)
        assert kv.commit([0, 2, 3]) == 0
        launches += out.results
    assert len(launches) == 3
    text = [1, 3, 4] * 3
    assert model.forward(Rows.chain([7], 9), kv=kv).argmax == _golden(network, [*text, 7])[-1:]


def test_evicted_rows_are_seen_no_more() -> None:
    """Keys stay as they were stored, so the golden is the interpreter's cache with the same rows left out."""
    network = random_network(SIZES, SEED)
    model, cache = _model(network, 4 * PAGE), Cache(network.graph)
    kv, interpreter = model.kv(), IntegerInterpreter(network)
    text = list(range(12))
    model.forward(Rows.chain(text), kv=kv)
    interpreter.forward(Rows.chain(text), cache)
    kv.evict(2, 5)
    kv.gather(np.array([0, 1, 2, 4, 5, 6]))
    cache.keep([0, 1, 7, 9, 10, 11], 0)
    rows = Rows.chain([20, 21], 6)
    expected = interpreter.forward(rows, cache)
    assert model.forward(rows, kv=kv).argmax == expected.argmax(axis=1).tolist()


def test_a_full_pool_is_refused() -> None:
    network = random_network(SIZES, SEED)
    model = _model(network, 2 * PAGE)
    kv, other = model.kv(), model.kv()
    model.forward(Rows.chain(list(range(PAGE + 1))), kv=kv)
    with pytest.raises(ValueError, match="all 2 pages of 32 rows are in use: truncate or end a sequence"):
        model.forward(Rows.chain([1]), kv=other)
    kv.truncate(PAGE)
    model.forward(Rows.chain([1]), kv=other)


def test_refuses_other_caches() -> None:
    network = random_network(SIZES, SEED)
    model, device = _model(network, 2 * PAGE), load_config("base")
    program = compile_network(network, device, rows=4, tokens=True)
    plain = LoadedModel("target", program, program.fill(network), open_device("model", device, program.size))
    with pytest.raises(ValueError, match="a paged program takes caches of its own kind"):
        model.forward(Rows.chain([1]), kv=plain.kv())
    with pytest.raises(ValueError, match="a contiguous program takes caches of its own kind"):
        plain.forward(Rows.chain([1]), kv=model.kv())
    with pytest.raises(ValueError, match="a fork must be of the same pool"):
        model.kv().fork(plain.kv())
    with pytest.raises(ValueError, match="moves no cache rows: keep the path with the cache's commit"):
        model.commit(0, [0, 2])


@pytest.mark.parametrize(("page", "rule"), [(0, "1 to 32 rows"), (33, "not 33")])
def test_refuses_pages(page: int, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        PagePool(32, page)


OPERATIONS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["grow", "commit", "truncate", "fork", "evict"]),
                                st.integers(0, 9), st.integers(0, 9)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_no_row_is_handed_out_twice(operations: list[tuple[int, str, int, int]]) -> None:
    """Against lists of unique numbers, one for each row ever written."""
    pool = PagePool(64, 4)
    caches, golden = [PagedKV(None, pool, 30) for _ in range(3)], [list[int]() for _ in range(3)]
    written: dict[int, int] = {}
    """By row of the pool the number that it holds."""
    serial = 0
    for at, what, a, b in operations:
        kv, text = caches[at], golden[at]
        match what:
            case "grow":
                count = min(a, kv.room - kv.length, pool.free_pages * pool.page)
                for row in kv.places(count)[len(text):]:
                    serial += 1
                    written[int(row)] = serial
                    text.append(serial)
                kv.append(count)
            case "commit" if kv._added:
                path = sorted({a % kv._added, b % kv._added})
                golden[at] = text[:len(text) - kv._added] + [text[len(text) - kv._added + i] for i in path]
                kv.commit(path)
            case "truncate":
                kv.truncate(min(a, kv.length))
                golden[at] = text[:kv.length]
            case "fork" if a % 3 != at:
                kv.fork(caches[a % 3])
                golden[a % 3] = list(text)
            case "evict":
                first = min(a, kv.length)
                count = min(b, kv.length - first)
                kv.evict(first, count)
                golden[at] = text[:first] + text[first + count:]
        for cache, wanted in zip(caches, golden, strict=True):
            assert [written[row] for row in cache.rows] == wanted
    for cache in caches:
        cache.truncate(0)
    assert pool.free_pages == 16
