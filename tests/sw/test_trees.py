"""Trees of candidates on the device: the tokens and the cache of autoregressive decoding, whatever is proposed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.equality import Uncharged
from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.config import Config, load_config
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.tree import Drafter, Extra, Tree
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.step import Forward
from gemmule.sw.workloads.pruned import Untimed
from tests.compiler.integer_networks import Sizes, random_network

SEED = 20261125
EDGE = load_config("edge")
SIZES = Sizes(family="llama", hidden=48, inner=100, heads=4, kv_heads=2, head_dim=24, layers=3, vocab=101, positions=60)
PROMPT = [3, 1, 4, 1, 5]


def _model(network: Network, config: Config, rows: int, backend: str = "model") -> LoadedModel:
    program = compile_network(network, config, rows=rows, tokens=True)
    return LoadedModel("target", program, program.fill(network), open_device(backend, config, program.size))


class Bushy(Drafter):
    """Random trees in which some branch may be right: children of a node are drawn from few tokens."""

    def __init__(self, text: list[int]) -> None:
        self.text = text
        """What autoregressive decoding gives behind the prompt."""

    def propose(self, ids: list[int], budget: int) -> Tree:
        random, right = np.random.default_rng((SEED, len(ids))), self.text[len(ids) - len(PROMPT):]
        tokens, parent, depth = [ids[-1]], [-1], [0]
        for node in range(1, budget + 1):
            behind = int(random.integers(max(0, node - 3), node))
            good = depth[behind] < len(right) and random.random() < 0.7
            tokens.append(right[depth[behind]] if good else int(random.integers(101)))
            parent.append(behind)
            depth.append(depth[behind] + 1)
        if len(ids) % 2:
            return Tree(tokens, parent)
        keep = (budget + 3) // 2  # the rest goes along as rows that see what they like, and is never kept
        extra = [Extra(int(random.integers(101)), int(random.integers(0, budget + 1)),
                       tuple(np.flatnonzero(random.random(row) < 0.4).tolist())) for row in range(keep, budget + 1)]
        return Tree(tokens[:keep], parent[:keep], extra=extra)


@pytest.mark.parametrize(("family", "config"), [("llama", "base"), ("gpt2", "edge"), ("opt", "base")])
def test_tokens_and_cache_of_autoregressive_decoding(family: str, config: str) -> None:
    """To the end of the context; every accepted path is moved together in all layers."""
    network = random_network(replace(SIZES, family=family), SEED)  # type: ignore[arg-type]
    model, device = _model(network, load_config(config), 8), load_config(config)
    plain = generate(model, Autoregressive(), PROMPT, 99, Ledger(device))
    assert plain.finish_reason == "context"
    before = bytes(model.device.read_dram(*model.program.symbols[CACHE]))
    model = _model(network, device, 8)
    found = generate(model, Bushy(plain.tokens), PROMPT, 99, ledger := Ledger(device))
    assert found.tokens == plain.tokens
    assert len(found.steps) < len(plain.steps)
    program = model.program
    after = bytes(model.device.read_dram(*program.symbols[CACHE]))
    layout = program.layout
    kept = (len(PROMPT) + len(found.tokens) - 1) * layout.row
    for begin in range(0, layout.size, layout.pitch):
        assert after[begin:begin + kept] == before[begin:begin + kept]
    moves = ledger.launches["target"] - len(found.steps) - 1
    assert 0 < moves < len(found.steps), "some paths were not in place, and moving them was charged"
    assert ledger.device_cycles == sum(ledger.by_model.values())


class Wild(Drafter):
    """Random trees of any form: chains, stars, equal siblings, many tokens 0; the text's own next tokens among them."""

    def __init__(self, text: list[int], given: int, seed: int) -> None:
        self.text, self.given, self.random = text, given, np.random.default_rng(seed)
        self.seen = Counter[str]()

    def propose(self, ids: list[int], budget: int) -> Tree:
        random, right = self.random, self.text[len(ids) - self.given:]
        reach, tokens, parent, depth = int(random.choice([1, 2, 8])), [ids[-1]], [-1], [0]
        for node in range(1, int(random.integers(0, budget + 1)) + 1):
            behind = int(random.integers(max(0, node - reach), node))
            good = depth[behind] < len(right) and random.random() < 0.6
            tokens.append(right[depth[behind]] if good else int(random.integers(0, random.choice([1, VOCABULARY]))))
            parent.append(behind)
            depth.append(depth[behind] + 1)
        pairs = [*zip(parent, tokens)]
        self.seen.update({"trees": 1, "siblings": len(set(parent)) < len(pairs), "token 0": 0 in tokens[1:],
                          "equal siblings": len(set(pairs)) < len(pairs), "the last position": budget == max(depth)})
        return Tree(tokens, parent)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.seen.update({"accepted": len(path) > 1, "a stop inside": len(new) < len(path)})


VOCABULARY = 5
WILD = replace(SIZES, vocab=VOCABULARY, hidden=24, inner=24, head_dim=8, layers=1)


def decode_wildly(model: LoadedModel, part: int, texts: int) -> Counter[str]:
    """Texts with random trees, each to a stop, to a number of tokens or to the end of the context; what they had."""
    random, seen = np.random.default_rng((SEED, part)), Counter[str]()
    for number in range(texts):
        prompt = random.integers(0, VOCABULARY, random.integers(1, 9)).tolist()
        plain = generate(model, Autoregressive(), prompt, 99, Ledger(EDGE)).tokens
        end, stops, new, reason = len(plain), frozenset[int](), 99, "context"
        if number % 3 == 0:
            stop = plain[int(random.integers(len(plain)))]
            end, stops, reason = plain.index(stop) + 1, frozenset({stop}), "stop"
        elif number % 3 == 1:
            end, reason = (new := int(random.integers(8, 40))), "length"
        drafter = Wild(plain, len(prompt), SEED + number + 1000 * part)
        found = generate(model, drafter, prompt, new, Ledger(EDGE), stops)
        assert (found.tokens, found.finish_reason) == (plain[:end], reason)
        seen += drafter.seen + Counter({found.finish_reason: 1, "0 in the text": 0 in found.tokens})
    return seen


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, 5))])
def test_random_trees_in_the_loop(part: int) -> None:
    """A thousand in all parts: on the interpreter, with stops, tokens 0 and the context's end inside."""
    print(f"seed {SEED}, part {part}")
    network = random_network(WILD, SEED)
    seen = decode_wildly(Uncharged("target", network, Untimed(network.graph, 8), None), part, 24)  # type: ignore[arg-type]
    assert seen["trees"] >= 200
    for kind in ("siblings", "equal siblings", "token 0", "the last position", "accepted"):
        assert seen[kind] > 20, f"only {seen[kind]} of {seen['trees']} trees have {kind}"
    for kind in ("stop", "length", "context", "a stop inside", "0 in the text"):
        assert seen[kind] > 1, f"only {seen[kind]} texts have {kind}"


def test_random_trees_in_the_loop_find_a_wrong_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a path's last row is taken from the row after it, as in a cache whose rows were moved wrongly."""
    keep = Cache.keep

    def wrong(self: Cache, slots: list[int], sequence: int = 0) -> None:
        moved = [*slots]
        if moved and moved[-1] + 1 < self.length(sequence) and moved != [*range(len(moved))]:
            moved[-1] += 1
        keep(self, moved, sequence)

    monkeypatch.setattr(Cache, "keep", wrong)
    network = random_network(WILD, SEED)
    with pytest.raises(AssertionError):
        decode_wildly(Uncharged("target", network, Untimed(network.graph, 8), None), 0, 24)  # type: ignore[arg-type]


def test_every_node_sees_its_path_only() -> None:
    network = random_network(SIZES, SEED)
    model = _model(network, load_config("edge"), 8)
    interpreter, cache = IntegerInterpreter(network), Cache(network.graph)
    interpreter.forward(Rows.chain(PROMPT), cache)
    model.forward(Rows.chain(PROMPT), 0)
    tree = Rows.tree([7, 8, 9, 10, 11, 12, 13, 14], [-1, 0, 0, 1, 2, 2, 4, 4], len(PROMPT))
    wanted = interpreter.forward(tree, cache).argmax(axis=1)
    assert model.forward(tree).argmax == wanted.tolist()
    model.commit(len(PROMPT), [0, 2, 4, 7])
    cache.keep([*range(len(PROMPT)), *(len(PROMPT) + node for node in (0, 2, 4, 7))])
    following = Rows.chain([20, 21, 22], len(PROMPT) + 4)
    assert model.forward(following).argmax == interpreter.forward(following, cache).argmax(axis=1).tolist()


@pytest.mark.rtl
@pytest.mark.long  # test_methods_rtl.py moves rows of trees, too
def test_rtl_moves_the_same_rows_in_the_same_cycles() -> None:
    network, device = random_network(SIZES, SEED), load_config("tiny")
    ledgers, texts = [], []
    plain = generate(_model(network, device, 4), Autoregressive(), PROMPT, 8, Ledger(device)).tokens
    for backend in ("model", "rtl"):
        model = _model(network, device, 4, backend)
        texts.append(generate(model, Bushy(plain), PROMPT, 8, ledger := Ledger(device)).tokens)
        ledgers.append(ledger)
        model.device.close()
    assert texts == [plain, plain]
    assert ledgers[0] == ledgers[1]
    assert ledgers[0].launches["target"] > len(ledgers[0].launches)


@pytest.mark.parametrize(("position", "path"), [(0, [0, 2, 1]), (0, []), (0, [1, 8]), (57, [0, 3]), (0, [-1, 2])])
def test_paths_that_cannot_be(position: int, path: list[int]) -> None:
    program = compile_network(random_network(SIZES, SEED), load_config("edge"), rows=8)
    with pytest.raises(CompileError, match="a path must rise within 0 to"):
        program.commit.step(position, path)


def test_paths_in_place_cost_nothing() -> None:
    program = compile_network(random_network(SIZES, SEED), load_config("edge"), rows=8)
    assert program.commit.step(50, [0, 1, 2]) is None
