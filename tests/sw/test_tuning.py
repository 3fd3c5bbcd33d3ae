"""A target tuned to draft for itself: its changes in integers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import ModelFile
from gemmule.compiler.ir import Cache, Embedding, IntegerInterpreter, Linear, Rows, residuals
from gemmule.compiler.quantize.restore import restore_network
from gemmule.sw.limits import MODELS_FOLDER, TUNED
from gemmule.sw.models.bundled_models import bundled_model, bundled_tokenizer
from gemmule.sw.models.drafting.tuned import FILE, PARTS, Streams, changed, changes_bytes, read_changes
from gemmule.sw.models.pair import bundled_pair


@pytest.fixture(scope="module")
def target() -> ModelFile:
    return bundled_model("target", "default")


@pytest.fixture(scope="module")
def written(target: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random changes of the default target, of one layer and of all its parts."""
    random, graph = np.random.default_rng(3), target.network.graph
    pairs = {}
    for part, names in PARTS.items():
        nodes = [graph.by_name[f"1.{name}"] for name in names]
        columns, depth = sum(node.columns for node in nodes), nodes[0].depth  # type: ignore[attr-defined]
        pairs[1, part] = 0.1 * random.standard_normal((3, depth)), 0.1 * random.standard_normal((columns, 3))
    path = tmp_path_factory.mktemp("tuned") / FILE
    path.write_bytes(changes_bytes(pairs, random.standard_normal((2, 256)), 4, (7, 9), target.sha256))
    return path


def test_changes_in_integers(target: ModelFile, written: Path) -> None:
    """Each matrix is the nearest to the sum at the steps that it has; all else stays, the head among it."""
    changes = read_changes(written, target)
    made, streams = changed(target, changes)
    assert streams == Streams((7, 9), 4)
    assert made.sha256 != target.sha256
    before, after = restore_network(target.network), restore_network(made.network)
    for node in target.network.graph.nodes:
        if not isinstance(node, Linear):
            continue
        old, new = (one.tensor(node, "weight") for one in (before, after))
        layer, _, name = node.name.partition(".")
        part = next((part for part, names in PARTS.items() if name in names), "")
        if (int(layer) if layer.isdigit() else -1, part) not in changes.pairs:
            mine = made.network.tensor(made.network.graph.by_name[node.name], "weight")
            assert (target.network.tensor(node, "weight") == mine).all(), node.name
            continue
        narrow, wide = changes.pairs[1, part]
        start = sum(node.columns for _ in PARTS[part][:PARTS[part].index(name)])
        codes = target.network.tensor(node, "weight").astype(np.int64)
        step = (np.abs(old).max(axis=1) / np.abs(codes).max(axis=1))[:, None]
        wanted = np.clip(old + (wide @ narrow)[start:start + node.columns], -127 * step, 127 * step)
        assert (np.abs(new - wanted) <= 0.501 * step).all(), node.name
        assert (new != old).any()


def test_streams_begin_with_their_rows(target: ModelFile, written: Path) -> None:
    changes = read_changes(written, target)
    network = changed(target, changes)[0].network
    values: dict[str, np.ndarray] = {}
    IntegerInterpreter(network).forward(Rows.chain([7, 9]), Cache(network.graph), values.__setitem__)
    scale = next(node for node in network.graph.nodes if isinstance(node, Embedding)).type.scale
    assert isinstance(scale, float)
    rows = values[residuals(network.graph)[0]] * scale
    assert np.abs(rows - changes.streams).max() <= scale + np.abs(changes.streams).max() / 100


def test_files_that_are_refused(target: ModelFile, written: Path, tmp_path: Path) -> None:
    other = replace(target, sha256="0" * 64)
    with pytest.raises(CompileError, match=r"must change the target beside it, 000000000000\.\., not"):
        read_changes(written, other)
    (tmp_path / FILE).write_bytes(written.read_bytes()[:300])
    for path in (tmp_path / FILE, tmp_path / "none"):
        with pytest.raises(CompileError, match="must be a readable file of changes: .*: install Gemmule again"):
            read_changes(path, target)
    changes = read_changes(written, target)
    narrow, wide = changes.pairs[1, "out"]
    with pytest.raises(CompileError, match="changes of out in layer 1 must be those of this target's matrices"):
        changed(target, replace(changes, pairs={(1, "out"): (narrow, wide[1:])}))


def test_the_pair_that_ships() -> None:
    """Its streams begin by tokens that no text has; draft and tokens are the default pair's."""
    pair, default = bundled_pair(TUNED), bundled_pair("default")
    assert (pair.name, pair.positions, default.streams) == (TUNED, default.positions, None)
    assert pair.streams is not None
    texts = "".join(map(chr, range(32, 0x2000)))
    assert not {*bundled_tokenizer("default").encode(texts).ids} & {*pair.streams.tokens}
    assert pair.digests[1] == default.digests[1]
    assert (MODELS_FOLDER / "default" / FILE).stat().st_size <= 1_200_000
