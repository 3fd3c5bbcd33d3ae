"""Rows of the residual stream that one network leaves in DRAM, and networks that read them."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Borrowed, Cache, IntegerInterpreter, Network, Rows, residuals
from gemmule.compiler.kernels.head.lent import LENT, Lender
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import compile_prefill
from gemmule.config import load_config
from gemmule.numerics import join_planes
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.step import Want
from tests.compiler.integer_networks import Sizes, borrowing, random_network

CONFIG = load_config("edge")
SIZES = Sizes(family="llama", hidden=40, inner=72, heads=2, kv_heads=2, head_dim=16, layers=6, vocab=41, positions=90,
              wide=True, steps=True, prefix=1)
DRAFTER = Sizes(family="llama", hidden=40, inner=56, heads=2, kv_heads=1, head_dim=24, layers=2, vocab=47, positions=90,
                prefix=1)
TOKENS = list(np.random.default_rng(3).integers(0, 41, 50))


def rows_of(program: ModelProgram, device: Simulator, depth: int, count: int, columns: int) -> np.ndarray:
    """Lent rows behind the constant one, int16 [count, columns]."""
    lends = program.lends
    assert lends is not None
    at = (depth // lends.every - 1) * lends.stride + lends.row
    raw = program.read(device.read_dram, LENT, at, count * lends.row).reshape(count, -1, 2, CONFIG.dim)
    return join_planes(raw[:, :, 0], raw[:, :, 1]).reshape(count, -1)[:, :columns]


def expected(network: Network, tokens: list[int]) -> dict[int, np.ndarray]:
    """The residual stream by depth."""
    names, found = residuals(network.graph), dict[str, np.ndarray]()
    IntegerInterpreter(network).forward(Rows.chain(tokens, 1), Cache(network.graph), found.__setitem__)
    return {depth: found[names[depth]] for depth in range(1, network.graph.layers + 1)}


@pytest.mark.parametrize("every", [1, 3, 6])
def test_lent_rows_are_those_of_the_interpreter(every: int) -> None:
    """However many depths: by passes that decode, of which the prefill is one that has its last layer whole."""
    network = random_network(SIZES, 11)
    program = compile_network(network, CONFIG, rows=8, tokens=True, lend=every)
    base = -(-program.size // (1 << 16)) << 16
    prefill = compile_prefill(network, program, rows=16, base_address=base)
    dram = np.zeros(base + prefill.size, dtype=np.uint8)
    dram[:program.size] = program.fill(network)
    prefill.put(dram[base:], "program", np.frombuffer(prefill.image, dtype=np.uint8))
    plain = compile_network(network, CONFIG, rows=8, tokens=True)
    device, first = Simulator(CONFIG, dram_bytes=len(dram)), Simulator(CONFIG, dram_bytes=plain.size)
    model = LoadedModel("target", program, dram, device, prefill=prefill)
    other = LoadedModel("target", plain, plain.fill(network), first)
    kv, without = model.kv(), other.kv()
    for part in (TOKENS[:41], TOKENS[41:42], TOKENS[42:]):
        wanted = min(3, len(part))
        rows = Rows.chain(part, kv.length)
        assert model.forward(rows, wanted, kv).argmax == other.forward(rows, wanted, without).argmax
    for depth, value in expected(network, TOKENS).items():
        if depth % every == 0:
            assert np.array_equal(rows_of(program, device, depth, len(TOKENS), 40), value)


def drafted(rows: Rows, kept: dict[int, np.ndarray], network: Network) -> np.ndarray:
    """Logits of a borrower, by the interpreter."""
    feed = {node.name: np.concatenate([np.zeros((1, 40)), kept[node.depth]])[rows.lent]
            for node in network.graph.nodes if isinstance(node, Borrowed)}
    return IntegerInterpreter(network).forward(rows, Cache(network.graph), feed=feed)


def test_a_borrower_reads_them_by_list() -> None:
    """Rows read that of their own position or another one's; the simulated device agrees with the interpreter."""
    target, network = random_network(SIZES, 11), borrowing(random_network(DRAFTER, 12), (3, 6), 13)
    program = compile_network(target, CONFIG, rows=8, tokens=True, lend=3)
    assert program.lends is not None
    base = -(-program.size // (1 << 16)) << 16
    lender = Lender(program.lends, program.symbols[LENT])
    drafter = compile_network(network, CONFIG, rows=8, tokens=True, base_address=base, borrow=lender)
    device = Simulator(CONFIG, dram_bytes=base + drafter.size)
    first = LoadedModel("target", program, program.fill(target), device)
    second = LoadedModel("draft", drafter, drafter.fill(network), device)
    first.forward(Rows.chain(TOKENS[:30]), 0, first.kv())
    kept = expected(target, TOKENS[:30])
    given = [*TOKENS[1:31], 41, 42, 43]
    rows = Rows.chain(given).borrowing([*range(30), 29, 29, 29])
    found = second.forward(rows, 9, second.kv()).argmax
    assert found == drafted(rows.behind(1), kept, network).argmax(axis=1)[-9:].tolist()
    own = Rows.chain(given[:30])
    assert second.forward(own, 9, second.kv()).argmax == second.forward(
        own.borrowing(range(30)), 9, second.kv()).argmax
    other = drafted(rows.borrowing([*range(30), 28, 28, 28]).behind(1), kept, network)
    assert not np.array_equal(other[-3:], drafted(rows.behind(1), kept, network)[-3:])  # the list matters


@pytest.mark.parametrize("interpreted", [False, True])
def test_a_borrower_goes_on_from_its_own_rows(interpreted: bool) -> None:
    """A pass reads rows of the target, or ones that an earlier pass left; those of candidates of a tree, too. The
    simulated device, and the interpreter as a model, agree with the definition.
    """
    target, network = random_network(SIZES, 11), borrowing(random_network(DRAFTER, 12), (3, 6), 13, own=True)
    program = compile_network(target, CONFIG, rows=8, tokens=True, lend=3, own=32)
    assert program.lends is not None
    base = -(-program.size // (1 << 16)) << 16
    drafter = compile_network(network, CONFIG, rows=8, tokens=True, base_address=base, general=True,
                              borrow=Lender(program.lends, program.symbols[LENT]))
    device = Simulator(CONFIG, dram_bytes=base + drafter.size)
    if interpreted:
        lender = InterpretedModel("target", target, program, device)
        second: LoadedModel = InterpretedModel("draft", network, drafter, device, lender=lender)
        lender.forward(Rows.chain(TOKENS[:20]), 0, lender.kv())
    else:
        first = LoadedModel("target", program, program.fill(target), device)
        second = LoadedModel("draft", drafter, drafter.fill(network), device)
        first.forward(Rows.chain(TOKENS[:20]), 0, first.kv())
    hidden, cache, kv = expected(target, TOKENS[:20]), Cache(network.graph), second.kv()

    def passed(rows: Rows, own: np.ndarray | None, last: int) -> np.ndarray:
        """Checks a pass, by the device from where its rows are, by the definition as it is told; returns slots."""
        feed = {node.name: np.zeros((len(rows), 40)) for node in network.graph.nodes if isinstance(node, Borrowed)}
        if own is None:
            feed |= {f"hidden{depth}": hidden[depth][:len(rows)] for depth in (3, 6)}
        else:
            feed["own"] = own
        values: dict[str, np.ndarray] = {}
        logits = IntegerInterpreter(network).forward(rows.behind(1), cache, values.__setitem__, feed=feed)[-last:]
        out = second.forward(rows, Want(last=last, top=4, hidden=(2,)), kv)
        assert out.top is not None
        assert np.array_equal(out.top.tokens, np.argsort(-logits, axis=1, kind="stable")[:, :4])
        streams.append(values[residuals(network.graph)[2]])
        return out.hidden[2].slots

    streams: list[np.ndarray] = []
    start = program.lends.positions - 1  # positions here count without the constant row
    text = start + passed(Rows.chain(TOKENS[1:21]), None, 1)[-1]
    slots = start + passed(Rows.tree([5, 9], [-1, -1], 20).borrowing([text] * 2), streams[0][[-1, -1]], 2)
    kv.truncate(20)
    cache.truncate(21)
    tree = Rows.tree([5, 9, 7, 3], [-1, -1, 0, 1], 20)
    passed(tree.borrowing([text, text, *slots]), np.concatenate([streams[0][[-1, -1]], streams[1]]), 2)


def test_rows_that_are_not_given() -> None:
    network = borrowing(random_network(DRAFTER, 12), (3,), 13)
    rows = Rows.chain([1, 2, 3])
    with pytest.raises(CompileError, match="'hidden3' holds rows of another network: feed them"):
        IntegerInterpreter(network).forward(rows, Cache(network.graph))
    with pytest.raises(CompileError, match="each of 3 rows must borrow a row of at least 0, not"):
        rows.borrowing([0, 1, -1])


@pytest.mark.parametrize(("options", "said"), [
    ({"lend": 4}, "lent rows must stand behind layers of a decoder whose 6 layers are a multiple of them, not every 4"),
    ({"lend": 3, "batch": 2}, "rows that one network leaves for another are those of a sequence alone"),
])
def test_what_cannot_lend(options: dict[str, int], said: str) -> None:
    with pytest.raises(CompileError, match=said):
        compile_network(random_network(SIZES, 11), CONFIG, rows=4, **options)  # type: ignore[arg-type]


def test_what_cannot_borrow() -> None:
    network = borrowing(random_network(DRAFTER, 12), (2,), 13)
    with pytest.raises(CompileError, match="a network that reads rows of another one needs borrow="):
        compile_network(network, CONFIG, rows=4)
    program = compile_network(random_network(SIZES, 11), CONFIG, rows=4, lend=3)
    assert program.lends is not None
    with pytest.raises(CompileError, match="rows of 80 bytes are lent behind every 3 of 6 layers, not 40 columns"):
        compile_network(network, CONFIG, rows=4, borrow=Lender(program.lends, program.symbols[LENT]))
