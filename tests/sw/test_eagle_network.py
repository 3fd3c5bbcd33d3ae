"""The network of a trained sequential drafter: by its definition, for a turned target, and in integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import Made, ModelFile, load_model
from gemmule.compiler.ir import Borrowed, Cache, FloatInterpreter, IntegerInterpreter, Network, Rows, residuals
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.prefix import with_prefix
from gemmule.compiler.quantize.rotate import Rotation
from gemmule.sw.models.trained.calibrate import DRAFTED, calibrated, own_rows, quantised_bytes, steps_of
from gemmule.sw.models.trained.drafter import drafter_path
from gemmule.sw.models.trained.eagle import OWN, eagle_network
from gemmule.sw.models.trained.nodes import Target
from gemmule.sw.models.trained.read import Trained, read_trained
from tests.sw.test_one_pass_network import DEPTHS, DRAWS, SEED, TEXTS, VOCAB, normed, target

__all__ = ["target"]


@pytest.fixture(scope="module")
def drafter(target: Network) -> Trained:
    """Random weights."""
    node, hidden, inner = target.graph.attentions[0], target.graph.nodes[0].columns, 40
    kv = node.kv_heads * node.head_dim

    def matrix(outputs: int, inputs: int) -> np.ndarray:
        return (DRAWS.normal(size=(outputs, inputs)) * inputs ** -0.5).astype(np.float32)

    norms = ("norm", "token_norm", "row_norm", "block.attn_norm", "block.ffn_norm",
             *(f"depth_norms.{number}" for number in range(len(DEPTHS))))
    tensors = {f"{name}.weight": matrix(1, hidden)[0] + 1 for name in norms}
    for name, (outputs, inputs) in {
            "fuse": (hidden, len(DEPTHS) * hidden), "join": (hidden, 2 * hidden), "block.q": (node.columns, hidden),
            "block.k": (kv, hidden), "block.v": (kv, hidden), "block.out": (hidden, node.columns),
            "block.gate": (inner, hidden), "block.up": (inner, hidden), "block.down": (hidden, inner)}.items():
        tensors[f"{name}.weight"] = matrix(outputs, inputs)
    return Trained("eagle", DEPTHS, tensors, DRAWS.permutation(VOCAB)[:100])


def test_the_stream_begins_as_training_says(target: Network, drafter: Trained) -> None:
    """Of rows with the target's rows, and of one with its own; whether the target's rows are turned or not."""
    t, hidden = drafter.tensors, target.graph.nodes[0].columns
    eps = next(node.eps for node in target.graph.nodes if node.op == "norm")
    table, ids = target.tensor(target.graph.nodes[0], "table"), [5, 9, 7]
    rows = {depth: DRAWS.normal(size=(3, hidden)).astype(np.float32) for depth in DEPTHS}
    own = np.zeros((3, hidden), np.float32)
    own[2] = DRAWS.normal(size=hidden)
    fused = np.concatenate([normed(rows[depth], t[f"depth_norms.{at}.weight"], eps)
                            for at, depth in enumerate(DEPTHS)], axis=1) @ t["fuse.weight"].T
    fused[2] = own[2]
    expected = np.concatenate([normed(table[ids], t["token_norm.weight"], eps),
                               normed(fused, t["row_norm.weight"], eps)], axis=1) @ t["join.weight"].T
    found = []
    for turn in (None, Rotation(hidden, SEED)):
        network, values = eagle_network(drafter, Target(target, dict.fromkeys(DEPTHS, 1.0), turn)), {}
        feed = {f"hidden{depth}": value if turn is None else turn(value) for depth, value in rows.items()}
        for value in feed.values():
            value[2] = 0
        logits = FloatInterpreter(network).forward(
            Rows.chain(ids), Cache(network.graph), values.__setitem__, {**feed, OWN: own})
        np.testing.assert_allclose(values[residuals(network.graph)[0]], expected, atol=1e-4)
        assert residuals(network.graph)[1] == "0.end"
        found.append(logits)
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)
    assert found[0].shape == (3, 100)


@pytest.mark.parametrize("prefix", [(), (7,)])
def test_in_integers(target: Network, drafter: Trained, prefix: tuple[int, ...], tmp_path: Path) -> None:
    """Calibrated on the target's rows and its own it chooses mostly what it chooses in float, row behind own row."""
    made = Made(version="0", bits=8, group=0, method="nearest", smooth=False, seed=SEED, calibration_sha256="",
                prefix=prefix, rotate=True)
    integers = quantize_network(target, TEXTS, Options(prefix=prefix, rotate=True, smooth=False, seed=SEED)).network
    turn = Rotation(target.graph.nodes[0].columns, SEED)
    network = eagle_network(drafter, Target(target, steps_of(integers, DEPTHS), turn))
    calibration = calibrated(drafter, ModelFile(integers, made, None, (), (), ""), target, TEXTS, turn)
    path = tmp_path / "drafter.safetensors"
    path.write_bytes(quantised_bytes(network, calibration, prefix))
    found = load_model(path).network
    last, own = residuals(found.graph)[-1], found.graph.by_name[OWN]
    assert found.graph.prefix == len(prefix)
    assert isinstance(own, Borrowed)
    assert own.type.scale == own.step == found.graph.by_name[last].type.scale
    if prefix:
        tokens, rows = calibration.front
        network = with_prefix(network, tokens, {
            **{f"hidden{depth}": value for depth, value in rows.items()}, OWN: np.zeros_like(rows[DEPTHS[0]])})
    count, length = calibration.windows.shape
    feed = {f"hidden{depth}": value for depth, value in calibration.hidden.items()}
    left = own_rows(network, calibration.windows, feed)
    assert not left.reshape(count, length, -1)[:, :-DRAFTED].any()
    whole = [(calibration.windows[at].tolist(), slice(at * length, (at + 1) * length)) for at in range(count)]
    exact, logits = [], []
    steps = steps_of(integers, DEPTHS)
    for tokens, part in whole:
        rows = Rows.chain(tokens, len(prefix))
        values: dict[str, np.ndarray] = {}
        exact.append(FloatInterpreter(network).forward(
            rows, Cache(network.graph), values.__setitem__, {name: value[part] for name, value in feed.items()} | {
                OWN: left[part]}))
        np.testing.assert_allclose(values[last][-DRAFTED - 1:-1], left[part][-DRAFTED:], rtol=1e-4, atol=1e-4)
        fed = {f"hidden{depth}": np.rint(calibration.hidden[depth][part] / steps[depth]).astype(np.int64)
               for depth in DEPTHS} | {OWN: np.rint(left[part] / own.step).astype(np.int64)}
        logits.append(IntegerInterpreter(found).forward(rows, Cache(found.graph), feed=fed))
    for rows_of in (slice(None), slice(-DRAFTED, None)):
        a, b = (np.stack(part)[:, rows_of].reshape(-1, 100) for part in (exact, logits))
        assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.98
        assert (a.argmax(1) == b.argmax(1)).mean() > 0.7


def test_files(target: Network) -> None:
    """What ships for SmolLM2; a drafter of another target, and of another kind."""
    path = drafter_path("smollm2", "eagle")
    assert path is not None
    shipped = read_trained(path, "eagle")
    assert (shipped.depths, len(shipped.tokens), shipped.masks) == ((10, 20, 30), 8192, 0)
    with pytest.raises(CompileError, match="must be of a target with 576 columns and 30 layers, not"):
        eagle_network(shipped, Target(target, {}, None))
    with pytest.raises(CompileError, match="a drafter must be of the kind eagle, not parallel"):
        read_trained(path.with_name("parallel.safetensors"), "eagle")
