"""Heads on the target's last row: their networks by the definitions, and that random ones never change a text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from safetensors.numpy import save, save_file

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import Made, ModelFile, load_model
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Borrowed, Cache, FloatInterpreter, IntegerInterpreter, Network, Rows, residuals
from gemmule.compiler.kernels.head.lent import LENT, Lender
from gemmule.compiler.programs.beside import compile_beside
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.rotate import Rotation
from gemmule.config import Config, load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.context import OVERFLOWS
from gemmule.sw.decoding.exits.reference import Plain
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.heads import HeadsDrafter
from gemmule.sw.decoding.lengths import LENGTHS
from gemmule.sw.decoding.methods import DRAFT, METHODS, Request
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.trained import TrainedModel
from gemmule.sw.decoding.verify import GREEDY, Match, Rule
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.models.trained.calibrate import heads_calibrated, quantised_bytes, steps_of
from gemmule.sw.models.trained.drafter import KINDS, drafter_path, trained_drafter
from gemmule.sw.models.trained.nodes import Target
from gemmule.sw.models.trained.read import Trained, read_trained
from gemmule.sw.step import Asking, Forward
from tests.compiler import families
from tests.thinned import thinned

CONFIG = load_config("edge")
LAYERS, VOCAB, SEED, HEADS = 2, 97, 3, 3
METHODS_OF = {"blockwise": "blockwise", "medusa": "medusa", "hydra": "hydra"}
DRAWN = Match(Sampling(0.7, 8), Noise(5))
PROMPTS = ([7], [3, 1], [2, 9, 2, 9, 2, 9], list(range(5, 30)))
FOLDER = TemporaryDirectory()
"""Of the target, whose numbers are read when they are needed."""
Models = dict[str, TrainedModel]
SHARES = {(0,): 0.5, (1,): 0.2, (0, 0): 0.25, (0, 1): 0.1, (2,): 0.1, (0, 0, 0): 0.08, (1, 0): 0.05}
"""Of paths of ranks, as heads' files tell them."""


def weights(kind: str, hidden: int, draws: np.random.Generator) -> dict[str, np.ndarray]:
    """Random ones, by the names of training."""
    def matrix(outputs: int, inputs: int) -> np.ndarray:
        return (draws.normal(size=(outputs, inputs)) * inputs ** -0.5).astype(np.float32)

    def vector(size: int, mean: float) -> np.ndarray:
        return (0.2 * draws.normal(size=size) + mean).astype(np.float32)

    def loud(outputs: int, inputs: int) -> np.ndarray:
        """A column reaches 30 and more, as some of trained heads do; in the rows of other heads it is 0 still."""
        return matrix(outputs, inputs) * np.where(np.arange(outputs) == 3, 14, 1)[:, None].astype(np.float32)

    found = {"norm.weight": vector(hidden, 1)}
    if kind == "hydra":
        found |= {f"{name}.weight": vector(hidden, 1) for name in ("depth_norm", "token_norm", "row_norm", "ffn_norm")}
        return found | {"fuse.weight": matrix(hidden, hidden), "join.weight": matrix(hidden, 2 * hidden),
                        "gate.weight": matrix(40, hidden), "up.weight": matrix(40, hidden),
                        "down.weight": matrix(hidden, 40)}
    for number in range(HEADS):
        if kind == "medusa":
            found |= {f"heads.{number}.weight": loud(hidden, hidden), f"heads.{number}.bias": vector(hidden, 0)}
        else:
            found |= {f"heads.{number}.up.weight": loud(24, hidden), f"heads.{number}.up.bias": vector(24, 0),
                      f"heads.{number}.down.weight": matrix(hidden, 24)}
    return found


@cache
def made(prefix: tuple[int, ...] = (7,)) -> tuple[Network, ModelFile, dict[str, Trained]]:
    """A target in float and in integers, whose stream is turned, and heads for it."""
    target = load_network(families.write(Path(FOLDER.name), families.make(
        "llama", head_dim=16, layers=LAYERS, vocab=VOCAB)))
    draws = np.random.default_rng(8)
    integers = quantize_network(target, draws.integers(0, VOCAB, (4, 30)), Options(
        prefix=prefix, rotate=True, smooth=False, seed=SEED)).network
    file = ModelFile(integers, Made(version="0", bits=8, group=0, method="nearest", smooth=False, seed=SEED,
                                    calibration_sha256="", prefix=prefix, rotate=True), None, (), (), "")
    hidden = target.graph.nodes[0].columns
    return target, file, {kind: Trained(kind, (LAYERS,), weights(kind, hidden, draws), draws.permutation(VOCAB)[:60],
                                        0 if kind == "hydra" else HEADS) for kind in METHODS_OF}


def of_target(turned: bool = True) -> Target:
    target, file, _ = made()
    return Target(target, steps_of(file.network, (LAYERS,)),
                  Rotation(target.graph.nodes[0].columns, SEED) if turned else None)


@cache
def in_integers(kind: str) -> Network:
    _, file, heads = made()
    calibration = heads_calibrated(heads[kind], file, np.random.default_rng(9).integers(0, VOCAB, (4, 40)))
    path = Path(FOLDER.name) / f"{kind}.integers"
    path.write_bytes(quantised_bytes(KINDS[kind][0](heads[kind], of_target()), calibration, ()))
    return load_model(path).network


def normed(rows: np.ndarray, gains: np.ndarray | float = 1.0) -> np.ndarray:
    return rows / np.sqrt(np.square(rows).mean(-1, keepdims=True) + of_target().eps) * gains


def said(kind: str, row: np.ndarray, tokens: list[int]) -> np.ndarray:
    """What heads say behind a row of the target, by the papers, up to a factor a head  # [heads, tokens]"""
    t, target = made()[2][kind].tensors, of_target()
    head, x, found = target.table[made()[2][kind].tokens], normed(row, target.gains), []
    for number in range(HEADS):
        if kind == "medusa":
            z = x @ t[f"heads.{number}.weight"].T + t[f"heads.{number}.bias"]
            y = (x + z / (1 + np.exp(-z))) * t["norm.weight"]
        elif kind == "blockwise":
            z = np.maximum(x @ t[f"heads.{number}.up.weight"].T + t[f"heads.{number}.up.bias"], 0)
            y = (x + z @ t[f"heads.{number}.down.weight"].T) * t["norm.weight"]
        else:
            row = normed(row, t["depth_norm.weight"]) @ t["fuse.weight"].T if number == 0 else row
            read = np.concatenate([normed(target.table[tokens[number]], t["token_norm.weight"]),
                                   normed(row, t["row_norm.weight"])]) @ t["join.weight"].T
            z = normed(read, t["ffn_norm.weight"])
            gate = z @ t["gate.weight"].T
            row = read + (gate / (1 + np.exp(-gate)) * (z @ t["up.weight"].T)) @ t["down.weight"].T
            y = normed(row, t["norm.weight"])
        found.append(head @ y)
    return np.array(found)


def by_network(network: Network, kind: str, row: np.ndarray, tokens: list[int]) -> np.ndarray:
    """The same by the float network: heads side by side, or one behind the other."""
    def run(ids: list[int], feed: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> np.ndarray:
        return FloatInterpreter(network).forward(Rows.chain(ids), Cache(network.graph), values.__setitem__, feed)

    name = f"hidden{LAYERS}"
    if kind != "hydra":
        return run(list(range(HEADS)), {name: np.tile(row, (HEADS, 1))}, {})
    own, found = np.zeros_like(row), []
    for number in range(HEADS):
        values: dict[str, np.ndarray] = {}
        first = number == 0
        found.append(run([tokens[number]], {name: row[None] * first, "own": own[None]}, values)[0])
        own = values[residuals(network.graph)[-1]][0]
    return np.array(found)


@pytest.mark.parametrize(("kind", "turned"), [*product(METHODS_OF, [False, True])])
def test_the_network_says_what_the_papers_say(kind: str, turned: bool) -> None:
    """Whether the target's rows are turned or not, but for a factor of each head's logits."""
    target, _, heads = made()
    draws = np.random.default_rng(4)
    row, tokens = draws.normal(size=target.graph.nodes[0].columns).astype(np.float32), [5, 9, 11]
    turn = of_target().turn
    assert turn is not None
    network = KINDS[kind][0](heads[kind], of_target(turned))
    found = by_network(network, kind, turn(row) if turned else row, tokens)
    expected = said(kind, row, tokens)
    for mine, true in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine / np.abs(mine).max(), true / np.abs(true).max(), atol=5e-3)


@pytest.mark.parametrize("kind", METHODS_OF)
def test_in_integers_heads_mostly_choose_as_in_float(kind: str) -> None:
    target, file, heads = made()
    network = in_integers(kind)
    text = np.random.default_rng(5).integers(0, VOCAB, 40).tolist()
    values: dict[str, np.ndarray] = {}
    IntegerInterpreter(file.network).forward(Rows.chain(text, 1), Cache(file.network.graph), values.__setitem__)
    rows, turn = values[residuals(file.network.graph)[LAYERS]], of_target().turn
    assert turn is not None
    step = of_target().steps[LAYERS]
    back = turn(np.eye(rows.shape[1], dtype=np.float32))  # rows of a turned stream, turned back by its transpose
    right = 0
    for at in range(36):
        ids = [0, 1, 2] if kind != "hydra" else [text[at + 1]]
        feed = {node.name: np.tile(rows[at] * (not node.own), (len(ids), 1)) for node in network.graph.nodes
                if isinstance(node, Borrowed)}
        logits = IntegerInterpreter(network).forward(Rows.chain(ids), Cache(network.graph), feed=feed)
        true = said(kind, (rows[at] * step) @ back.T, text[at + 1:])
        right += int((logits.argmax(1) == true[:len(ids)].argmax(1)).sum())
    assert right > 0.7 * 36 * len(ids)


def models(config: Config = CONFIG, rows: int = 8, *, backend: str = "model", interpreted: bool = False,
           drawn: bool = False, kinds: tuple[str, ...] = tuple(METHODS_OF)) -> tuple[LoadedModel, Models]:
    """Target and heads on one device; ``drawn``: with the program for tokens that are drawn."""
    target = made()[1].network
    program = compile_network(target, config, rows=rows, tokens=True, lend=LAYERS, own=16 * rows, context=70)
    assert program.lends is not None
    base = -(-program.size // (1 << 16)) << 16
    sampled = compile_beside(ModelProgram, target, program, rows=rows, context=program.max_positions, answered=True,
                             base_address=base, tokens=False) if drawn else None
    end, beside = base + (1 << 20), dict[str, ModelProgram]()
    for kind in kinds:
        beside[kind] = compile_network(in_integers(kind), config, rows=rows, tokens=True, base_address=end,
                                       general=True, borrow=Lender(program.lends, program.symbols[LENT]))
        end = -(-(end + beside[kind].size) // (1 << 16)) << 16
    device = open_device(backend, config, end)
    if interpreted:
        assert isinstance(device, Simulator)
        first: LoadedModel = InterpretedModel(TARGET, target, program, device, sampled=sampled)
    else:
        first = LoadedModel(TARGET, program, program.fill(target), device, sampled=sampled)
        if sampled:
            device.write_dram(sampled.symbols["program"][0], sampled.image)
    found: Models = {}
    for kind, one in beside.items():
        if isinstance(first, InterpretedModel):
            assert isinstance(device, Simulator)
            second: LoadedModel = InterpretedModel(DRAFT, in_integers(kind), one, device, lender=first)
        else:
            second = LoadedModel(DRAFT, one, one.fill(in_integers(kind)), device)
        found[kind] = TrainedModel(second, made()[2][kind].tokens, () if kind == "hydra" else tuple(range(HEADS)), "",
                                   SHARES)
    return first, found


@pytest.fixture(scope="module")
def both() -> tuple[LoadedModel, Models]:
    return models()


def talk(target: LoadedModel, trained: Models, ledger: Ledger, *, method: str, count: int = 7, kept: bool = True,
         overflow: str = "stop", rule: Rule = GREEDY, **options: int | str | float) -> Conversation:
    charged = {kind: replace(one, model=one.model.charging(ledger)) for kind, one in trained.items()}
    kv = target.charging(ledger).kv(kept=kept)
    drafter = METHODS[method].make(Request(
        draft=None, target=target.charging(ledger, DRAFT), cache=kv, lengths=LENGTHS["constant"](count),
        ends=frozenset(), rule=rule, host=CONFIG.host, kept=kept, trained=charged,
        options=METHODS[method].values(options)))
    return Conversation(target, drafter, ledger, rule=rule, overflow=OVERFLOWS[overflow], kv=kv)


@pytest.mark.parametrize(("number", "way"), thinned(range(len(PROMPTS)), [*product(["stop", "sinks"], METHODS_OF)]))
def test_the_text_is_that_of_ar(both: tuple[LoadedModel, Models], number: int, way: tuple[str, str]) -> None:
    """To the end of the context and behind it, and in a second turn that takes some of the text back."""
    prompt, (overflow, method) = PROMPTS[number], way
    texts = []
    for name in ("ar", method):
        ledger = Ledger(CONFIG)
        talking = talk(*both, ledger, method=name, overflow=overflow)
        found = [talking.turn(prompt, 30).tokens]
        talking.retract(7)
        found.append(talking.turn([4, 8], 60).tokens)
        texts.append(found)
        assert {name for name, launches in ledger.launches.items() if launches} == {TARGET, *METHODS[name].labels}
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("way", "method"), [*product(["no cache", "chain", "wide", "shape"], METHODS_OF)])
def test_other_ways(both: tuple[LoadedModel, Models], way: str, method: str) -> None:
    """Without a cache, as a chain, with many candidates a level, and in a shape that is given."""
    options: dict[str, int | str] = {}
    if method != "blockwise":
        options = {"chain": {f"{method}_top": 1}, "wide": {f"{method}_top": 8},
                   "shape": {"tree": "0 1 0,0 0,2 1,1 0,0,0"}}.get(way, {})
    kept = way != "no cache"
    expected = talk(*both, Ledger(CONFIG), method="ar", kept=kept).turn([3, 1, 4], 20)
    found = talk(*both, Ledger(CONFIG), method=method, kept=kept, **options).turn([3, 1, 4], 20)
    assert found.tokens == expected.tokens
    most = max(drafted for drafted, _ in found.steps)
    if method == "blockwise":
        assert most == HEADS
    elif way == "shape":
        assert most == 6
    else:
        assert most >= 1


@pytest.mark.parametrize("method", METHODS_OF)
def test_by_the_interpreter(both: tuple[LoadedModel, Models], method: str) -> None:
    """The same tokens, steps and cycles as of the simulated device."""
    runs, ledgers = [], []
    for target, trained in (both, models(interpreted=True)):
        ledgers.append(Ledger(CONFIG))
        runs.append(talk(target, trained, ledgers[-1], method=method).turn(PROMPTS[3], 30))
    assert (runs[0].tokens, runs[0].steps) == (runs[1].tokens, runs[1].steps)
    assert ledgers[0] == ledgers[1]


def right_heads(drafter: HeadsDrafter, text: list[int], numbers: np.ndarray) -> list[tuple[list[int], Forward]]:
    """Lets heads put the text's own token behind their best one, at every other head before it; what they said."""
    seen: list[tuple[list[int], Forward]] = []
    asked = drafter.said
    number_of = {token: number for number, token in enumerate(numbers.tolist())}

    def said(ids: list[int], heads: int, top: int) -> Asking[Forward]:
        out = yield from asked(ids, heads, top)
        seen.append((ids, out))
        argmax = [*out.argmax]
        tops = None if out.top is None else out.top.tokens.copy()
        for head in range(heads):
            own = number_of.get(text[len(ids) + head], 0) if len(ids) + head < len(text) else 0
            argmax[head] = own
            if tops is not None:
                tops[head, 1 - head % 2] = own
        return replace(out, argmax=argmax, top=out.top and replace(out.top, tokens=tops))

    drafter.said = said  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("method", ["blockwise", "medusa"])
def test_what_heads_read(both: tuple[LoadedModel, Models], method: str) -> None:
    """Each reads the row of the token before the pending one, wherever in the tree the target has read that."""
    target, trained = both
    ledger, plain = Ledger(CONFIG), made()[1].network
    expected = talk(*both, Ledger(CONFIG), method="ar").turn(PROMPTS[3], 24).tokens
    talking = talk(target, trained, ledger, method=method)
    assert isinstance(talking.drafter, HeadsDrafter)
    seen = right_heads(talking.drafter, [*PROMPTS[3], *expected], trained[method].tokens)
    run = talking.turn(PROMPTS[3], 24)
    assert run.tokens == expected
    network = in_integers(method)
    for ids, out in seen:
        values: dict[str, np.ndarray] = {}
        IntegerInterpreter(plain).forward(Rows.chain(ids[:-1], 1), Cache(plain.graph), values.__setitem__)
        heads = len(out.argmax)
        feed = {f"hidden{LAYERS}": np.tile(values[residuals(plain.graph)[LAYERS]][-1], (heads, 1))}
        logits = IntegerInterpreter(network).forward(Rows.chain(list(range(heads))), Cache(network.graph), feed=feed)
        assert out.argmax == logits.argmax(1).tolist()
        if out.top is not None:
            best = np.argsort(-logits, axis=1, kind="stable")[:, :out.top.tokens.shape[1]]
            assert out.top.tokens.tolist() == best.tolist()


@pytest.mark.parametrize("method", METHODS_OF)
def test_drawn_tokens(method: str) -> None:
    """Those that autoregressive decoding draws."""
    texts = []
    for name in ("ar", method):
        target, trained = models(interpreted=True, drawn=True, kinds=(method,))
        talking = talk(target, trained, Ledger(CONFIG), method=name, rule=DRAWN)
        texts.append([talking.turn(PROMPTS[2], 20).tokens, talking.turn([1, 2, 3], 12).tokens])
    assert texts[0] == texts[1]


def test_typical_acceptance_is_that_of_its_policy() -> None:
    """Each token is the target's choice or typical; where nothing but that is typical, the text is that of `ar`."""
    target, trained = models(interpreted=True, drawn=True, kinds=("medusa",))
    network = made()[1].network
    expected = talk(target, trained, Ledger(CONFIG), method="ar").turn(PROMPTS[2], 24).tokens
    for epsilon, delta in ((0.0, 0.0), (1.0, 1.0), (0.001, 0.3)):
        options = {"typical_epsilon": epsilon, "typical_delta": delta, "typical_temperature": 1.5}
        run = talk(target, trained, Ledger(CONFIG), method="medusa-typical", **options).turn(PROMPTS[2], 24)
        policy = METHODS["medusa-typical"].policy
        assert policy is not None
        values = METHODS["medusa-typical"].values(options)
        chosen = policy(Plain(network, [*PROMPTS[2], *run.tokens], len(PROMPTS[2]), values))
        assert chosen[:24] == run.tokens
        assert len(run.tokens) == 24
    assert run.tokens != expected, "the last options accept other tokens than the target's"
    unlike = [(token + 1) % VOCAB for token in expected]
    strict = METHODS["medusa-typical"].values({"typical_epsilon": 1.0, "typical_delta": 1.0})
    assert policy(Plain(network, [*PROMPTS[2], *unlike], len(PROMPTS[2]), strict))[:24] != unlike


@pytest.mark.parametrize("method", METHODS_OF)
def test_what_they_do_not_take(both: tuple[LoadedModel, Models], method: str) -> None:
    target, trained = both
    with pytest.raises(InputError, match=f"--method {method} needs a drafter that .* take --model default, or another"):
        talk(target, {}, Ledger(CONFIG), method=method)
    with pytest.raises(InputError, match=f"--method {method} needs a session with general=True for drawn tokens"):
        talk(target, trained, Ledger(CONFIG), method=method, rule=DRAWN)
    with pytest.raises(InputError, match="of small, which has none: take --model default, or another --method"):
        Session(load_config("base"), trained=[method])
    if method != "blockwise":
        with pytest.raises(InputError, match="--tree must have at most 4 candidates behind one path"):
            talk(target, trained, Ledger(CONFIG), method=method, tree="0 4", **{f"{method}_top": 4})


def test_heads_of_another_target_are_refused() -> None:
    _, _, heads = made()
    wrong = replace(heads["medusa"], tensors=weights("medusa", 24, np.random.default_rng(1)))
    with pytest.raises(CompileError, match="heads must be 1 to 16 of a target with .* columns, not 3 of 24"):
        KINDS["medusa"][0](wrong, of_target())


def test_a_file_of_training_is_read(tmp_path: Path) -> None:
    """Of Medusa's heads beside drafters that read several depths: they read the last one."""
    path, tensors = tmp_path / "medusa.safetensors", made()[2]["medusa"].tensors
    kept = {**tensors, "vocabulary": np.arange(60, dtype=np.int32)}
    save_file(kept, path, {"drafter": json.dumps({
        "kind": "medusa", "network": {"depths": [1, LAYERS]},
        "paths": [[list(ranks), share] for ranks, share in SHARES.items()]})})
    found = read_trained(path, "medusa")
    assert (found.depths, found.masks, found.shares) == ((LAYERS,), HEADS, SHARES)
    assert all(np.array_equal(found.tensors[name], value) for name, value in tensors.items())


def test_heads_that_tell_no_paths_are_refused(tmp_path: Path) -> None:
    """As those of an earlier training."""
    path = tmp_path / "medusa.safetensors"
    save_file({**made()[2]["medusa"].tensors, "vocabulary": np.arange(60, dtype=np.int32)}, path, {
        "drafter": json.dumps({"kind": "medusa", "network": {"depths": [LAYERS]}})})
    with pytest.raises(CompileError, match="heads must tell which paths are right how often: train them again"):
        read_trained(path, "medusa")


UNREADABLE, KIND = "must be a readable safetensors file: ", "must be of the kind medusa, not "


def of_a_drafter(told: str, name: str = "vocabulary") -> bytes:
    """A file of one tensor."""
    return save({name: np.ones(40)}, {"drafter": told})


@pytest.mark.parametrize(("content", "said"), [
    (b"", UNREADABLE), (b"nothing that is a file", UNREADABLE), (of_a_drafter("{}")[:-9], UNREADABLE),
    (of_a_drafter("{"), UNREADABLE), (save({"vocabulary": np.ones(2)}), KIND + "None"), (of_a_drafter("[]"), KIND),
    (of_a_drafter('{"kind": "medusa"}'), "must tell its network's depths"),
    (of_a_drafter('{"kind": "medusa", "network": {"depths": [2]}}', "other"), "must tell its network's depths"),
], ids=["empty", "other", "cut", "no JSON", "nothing told", "a list", "no network", "no vocabulary"])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """Heads of a published model are a user's own files."""
    path = tmp_path / "medusa.safetensors"
    path.write_bytes(content)
    with pytest.raises(CompileError, match=f"^{re.escape(str(path))}: a drafter {said}"):
        read_trained(path, "medusa")


def test_a_model_without_heads_says_what_trains_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmule.sw.models.trained.drafter.drafter_path", lambda name, kind: None)
    told = re.escape("train it (python -m gemmule.sw.training.heads.published), ")
    for name, more in (("smollm2", told), ("small", "")):
        with pytest.raises(InputError, match=f"^{name} comes with no trained Hydra heads: {more}take --model default,"):
            trained_drafter(name, "hydra", made()[1])


@pytest.mark.parametrize(("kind", "heads"), [("medusa", 4), ("blockwise", 4), ("hydra", 0)])
def test_what_ships_for_the_default_pair(kind: str, heads: int) -> None:
    path = drafter_path("default", kind)
    assert path is not None
    shipped = read_trained(path, kind)
    assert (shipped.depths, len(shipped.tokens), shipped.masks) == ((8,), 1024, heads)


@pytest.mark.rtl
@pytest.mark.long
@pytest.mark.parametrize("method", ["blockwise"])
def test_rtl_takes_the_same_cycles(method: str) -> None:
    """Six tokens. Medusa's rows do not fit the scratchpad of `tiny` beside the target."""
    config, runs, ledgers = load_config("tiny"), [], []
    for backend in ("model", "rtl"):
        target, trained = models(config, 4, backend=backend, kinds=(method,))
        ledgers.append(Ledger(config))
        runs.append(talk(target, trained, ledgers[-1], method=method, count=3).turn(PROMPTS[1], 6))
        target.device.close()
    assert (runs[0].tokens, runs[0].steps) == (runs[1].tokens, runs[1].steps)
    assert ledgers[0] == ledgers[1]
