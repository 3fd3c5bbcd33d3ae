"""The network of a trained one-pass drafter: by its definition, for a turned target, and in integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import Made, ModelFile, load_model
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, IntegerInterpreter, Network, Rows, residuals
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.rotate import Rotation, rotated
from gemmule.sw.models.trained.calibrate import calibrated, hidden_rows, quantised_bytes
from gemmule.sw.models.trained.drafter import drafter_path
from gemmule.sw.models.trained.nodes import Target
from gemmule.sw.models.trained.parallel import parallel_network
from gemmule.sw.models.trained.read import Trained, read_trained
from tests.compiler import families

DEPTHS, LAYERS, VOCAB, SEED = (2, 4), 4, 211, 3
DRAWS = np.random.default_rng(8)
TEXTS = DRAWS.integers(0, VOCAB, (4, 30))


def trained(hidden: int, width: int, kv: int, inner: int = 40) -> Trained:
    """Random weights."""
    def matrix(outputs: int, inputs: int) -> np.ndarray:
        return (DRAWS.normal(size=(outputs, inputs)) * inputs ** -0.5).astype(np.float32)

    tensors = {"join.weight": matrix(hidden, (len(DEPTHS) + 1) * hidden), "mask_embedding": matrix(3, hidden),
               "norm.weight": matrix(1, hidden)[0] + 1}
    tensors |= {f"norms.{number}.weight": matrix(1, hidden)[0] + 1 for number in range(len(DEPTHS) + 1)}
    for name, (outputs, inputs) in {"q": (width, hidden), "k": (kv, hidden), "v": (kv, hidden),
                                    "out": (hidden, width), "gate": (inner, hidden), "up": (inner, hidden),
                                    "down": (hidden, inner)}.items():
        tensors[f"blocks.0.{name}.weight"] = matrix(outputs, inputs)
    tensors |= {f"blocks.0.{name}.weight": matrix(1, hidden)[0] + 1 for name in ("attn_norm", "ffn_norm")}
    return Trained("parallel", DEPTHS, tensors, DRAWS.permutation(VOCAB)[:100], 3)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Network:
    """In float."""
    folder = tmp_path_factory.mktemp("target")
    return load_network(families.write(folder, families.make("llama", head_dim=16, layers=LAYERS, vocab=VOCAB)))


@pytest.fixture(scope="module")
def drafter(target: Network) -> Trained:
    node = target.graph.attentions[0]
    return trained(target.graph.nodes[0].columns, node.columns, node.kv_heads * node.head_dim)


def normed(rows: np.ndarray, gamma: np.ndarray, eps: float) -> np.ndarray:
    return rows / np.sqrt(np.square(rows).mean(-1, keepdims=True) + eps) * gamma


def test_the_stream_begins_as_training_says(target: Network, drafter: Trained) -> None:
    """Norm and product of each part, of tokens and masks, whether the target's rows are turned or not."""
    t, hidden = drafter.tensors, target.graph.nodes[0].columns
    eps = next(node.eps for node in target.graph.nodes if node.op == "norm")
    table = target.tensor(target.graph.nodes[0], "table")
    ids = [5, 9, VOCAB, VOCAB + 2]
    rows = {depth: DRAWS.normal(size=(4, hidden)).astype(np.float32) for depth in DEPTHS}
    read = np.concatenate([table[[5, 9]], t["mask_embedding"][[0, 2]]])
    parts = [normed(read, t["norms.0.weight"], eps),
             *(normed(rows[depth], t[f"norms.{at}.weight"], eps) for at, depth in enumerate(DEPTHS, 1))]
    expected = np.concatenate(parts, axis=1) @ t["join.weight"].T
    found = []
    for turn in (None, Rotation(hidden, SEED)):
        network = parallel_network(drafter, Target(target, dict.fromkeys(DEPTHS, 1.0), turn))
        values: dict[str, np.ndarray] = {}
        logits = FloatInterpreter(network).forward(
            Rows.chain(ids), Cache(network.graph), values.__setitem__,
            {f"hidden{depth}": value if turn is None else turn(value) for depth, value in rows.items()})
        np.testing.assert_allclose(values[residuals(network.graph)[0]], expected, atol=1e-4)
        found.append(logits)
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)
    assert found[0].shape == (4, 100)


@pytest.mark.parametrize("prefix", [(), (7,)])
def test_in_integers(target: Network, drafter: Trained, prefix: tuple[int, ...], tmp_path: Path) -> None:
    """Calibrated on the target's rows in integers it chooses mostly what it chooses in float."""
    options = Options(prefix=prefix, rotate=True, smooth=False, seed=SEED)
    made = Made(version="0", bits=8, group=0, method="nearest", smooth=False, seed=SEED, calibration_sha256="",
                prefix=prefix, rotate=True)
    integers = quantize_network(target, TEXTS, options).network
    file = ModelFile(integers, made, None, (), (), "")
    turn = Rotation(target.graph.nodes[0].columns, SEED)
    names = residuals(integers.graph)
    steps = [integers.graph.by_name[names[depth]].type.scale for depth in DEPTHS]
    network = parallel_network(drafter, Target(target, dict(zip(DEPTHS, steps)), turn))  # type: ignore[arg-type]
    calibration = calibrated(drafter, file, target, TEXTS, turn)
    path = tmp_path / "drafter.safetensors"
    path.write_bytes(quantised_bytes(network, calibration, prefix))
    found = load_model(path).network
    assert found.graph.prefix == len(prefix)
    text = DRAWS.integers(0, VOCAB, 40).tolist()
    hidden = hidden_rows(integers, Rows.chain(text[:-1], len(prefix)), DEPTHS)
    true: dict[str, np.ndarray] = {}
    turned = rotated(target, SEED)
    FloatInterpreter(turned).forward(Rows.chain([*prefix, *text[:-1]]), Cache(turned.graph), true.__setitem__)
    for depth, step in zip(DEPTHS, steps, strict=True):
        assert np.corrcoef((hidden[depth] * step).ravel(), true[names[depth]][len(prefix):].ravel())[0, 1] > 0.98
    rows = Rows.chain(text[1:], len(prefix))
    exact = FloatInterpreter(_with_front(network, calibration)).forward(
        rows, Cache(_with_front(network, calibration).graph),
        feed={f"hidden{depth}": hidden[depth] * step for depth, step in zip(DEPTHS, steps, strict=True)})
    logits = IntegerInterpreter(found).forward(
        rows, Cache(found.graph), feed={f"hidden{depth}": hidden[depth] for depth in DEPTHS})
    assert np.corrcoef(exact.ravel(), logits.ravel())[0, 1] > 0.98
    assert (exact.argmax(1) == logits.argmax(1)).mean() > 0.7


def _with_front(network: Network, calibration: object) -> Network:
    from gemmule.compiler.quantize.prefix import with_prefix

    tokens, rows = calibration.front  # type: ignore[attr-defined]
    return with_prefix(network, tokens, {f"hidden{depth}": value for depth, value in rows.items()})


def test_files(target: Network, drafter: Trained, tmp_path: Path) -> None:
    """What ships for SmolLM2; files that are none; a drafter of another target."""
    path = drafter_path("smollm2", "parallel")
    assert path is not None
    shipped = read_trained(path, "parallel")
    assert (shipped.depths, len(shipped.tokens), shipped.masks) == ((10, 20, 30), 8192, 6)
    assert shipped.tensors["join.weight"].shape == (576, 4 * 576)
    assert drafter_path("other", "parallel") is None
    with pytest.raises(CompileError, match="must be of a target with 576 columns and 30 layers, not"):
        parallel_network(shipped, Target(target, {}, None))
    with pytest.raises(CompileError, match="a drafter must be of the kind parallel, not eagle"):
        read_trained(path.with_name("eagle.safetensors"), "parallel")
    with pytest.raises(CompileError, match="a drafter must be a readable safetensors file"):
        read_trained(tmp_path / "none.safetensors", "parallel")
    save_file({"a": np.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(CompileError, match="a drafter must be of the kind parallel, not None"):
        read_trained(tmp_path / "a.safetensors", "parallel")
