"""The default pair's files: from what training writes to tokens on the device, and to the numbers of the page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.compiler.quantize.accuracy import predictor
from gemmule.config import load_config
from gemmule.sw.decoding.session import Session
from gemmule.sw.models import bundled, pair
from gemmule.sw.models import bundled_models as text
from gemmule.sw.text import corpus
from gemmule.sw.text.byte_level import EOS_ID
from gemmule.sw.training import cycles, measure, quality, report
from gemmule.sw.training.data import tokenizer
from gemmule.sw.training.networks import export
from gemmule.sw.training.networks import trained as networks
from tests.compiler import families

SEED = 20261124
TEXT = "def f(value):\n    return value + 1\n\n\nclass A:\n    pass\n" * 6


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return tokenizer.train_tokenizer([TEXT], vocab_size=300)


@pytest.fixture(scope="module")
def train(words: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What training writes, untrained."""
    folder, random = tmp_path_factory.mktemp("train"), np.random.default_rng(SEED)
    for name, layers in (("target", 2), ("draft", 1)):
        shape = export.ModelShape(hidden_size=32, intermediate_size=64, num_layers=layers, num_heads=2, head_dim=16,
                                  vocab_size=words.get_vocab_size(), max_positions=96, activation="relu2")
        export.save_checkpoint(folder / name, shape, {
            key: (random.standard_normal(size) if len(size) == 1 else random.standard_normal(size) / size[-1] ** 0.5
                  ).astype(np.float32) for key, size in shape.weight_shapes().items()})
    tokenizer.save_tokenizer(words, folder / "tokenizer.json")
    stream = tokenizer.token_stream(words, [("a.py", TEXT * 8)])
    (folder / "corpus").mkdir()
    for name in ("library", "packages", "calibration", "copies"):
        np.save(folder / "corpus" / f"{name}.npy", stream)
    np.save(folder / "corpus" / "starts.npy", np.array([0, len(stream)]))
    return folder


@pytest.fixture(scope="module")
def default(train: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "default"
    found, floats = networks.load_networks(train)
    networks.write_networks(found, floats, out, networks.calibration_windows(train, 96, 1), 1)
    return out


def test_writes_the_same_again(train: Path, default: Path, tmp_path: Path) -> None:
    found, floats = networks.load_networks(train)
    networks.write_networks(found, floats, tmp_path, networks.calibration_windows(train, 96, 1), 1)
    kept = {path.name: path.read_bytes() for path in default.iterdir()}
    assert kept == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(kept) == sorted([*bundled.FILES.values(), bundled.MANIFEST])


def test_an_encoder_beside_the_pair(train: Path, default: Path, words: Tokenizer, tmp_path: Path) -> None:
    """Its labels, <eos> before a text, its place in the manifest, and how many windows it tells right."""
    with pytest.raises(CompileError, match="must list an encoder: install"):
        bundled.bundled_file(default, bundled.ENCODER)
    out, source = shutil.copytree(default, tmp_path / "default"), shutil.copytree(train, tmp_path / "train")
    made = families.make("bert-classifier", seed=SEED, layers=1, vocab=words.get_vocab_size(), type_vocab_size=1)
    made.config["id2label"] = {str(number): name for number, name in enumerate("VWXYZ")}
    families.write(source / "encoder", made)
    windows, labels = np.random.default_rng(SEED).integers(2, 250, (11, 20)), np.arange(11) % 5
    np.savez(source / "encoder" / networks.UNSEEN, windows=windows, labels=labels)
    right = networks.write_encoder(source, out, 1)
    found = load_model(bundled.bundled_file(out, bundled.ENCODER))
    assert found.labels == tuple("VWXYZ")
    assert found.tokenizer is not None
    assert Tokenizer.from_str(found.tokenizer).encode("def").ids == [EOS_ID, *words.encode("def").ids]
    assert bundled.bundled_file(out, "target").exists()
    interpreter = IntegerInterpreter(found.network)
    said = [interpreter.forward(Rows.chain(row.tolist()), Cache(found.network.graph))[0].argmax() for row in windows]
    assert right == sum(said == labels)
    path = out / bundled.ALL[bundled.ENCODER]
    path.write_bytes((out / "draft.safetensors").read_bytes())
    with pytest.raises(CompileError, match="encoder.safetensors must hold the encoder, not the draft"):
        bundled.bundled_file(out, bundled.ENCODER)


def test_the_pair_decodes(default: Path, monkeypatch: pytest.MonkeyPatch, words: Tokenizer) -> None:
    """Greedy tokens of the interpreter, with and without the draft."""
    monkeypatch.setattr(pair, "MODELS_FOLDER", default.parent)
    monkeypatch.setattr(text, "MODELS", default.parent)
    text.bundled_tokenizer.cache_clear()
    try:
        found = pair.bundled_pair.__wrapped__("default")
        assert (found.name, found.positions, found.ends) == ("default", 96, {EOS_ID})
        ids = found.encode("class A:\n    pass\n")
        expected = measure.greedy(load_model(default / "target.safetensors").network, ids, 20)
        with Session(load_config("edge"), pair=found) as session:
            assert session.generate("ar", ids, 20).tokens == expected
            assert session.generate("draft", ids, 20, 3).tokens == expected
    finally:
        text.bundled_tokenizer.cache_clear()


def test_restored_weights_are_those_of_the_checkpoint(train: Path, default: Path, words: Tokenizer,
                                                      tmp_path: Path) -> None:
    """Up to what int8 lost: names, shapes, and what they compute."""
    vocab = words.get_vocab_size()
    shape = export.ModelShape(hidden_size=32, intermediate_size=64, num_layers=2, num_heads=2, head_dim=16,
                              vocab_size=vocab, max_positions=96, activation="relu2")
    weights = networks.restored_weights(load_model(default / "target.safetensors").network)
    export.save_checkpoint(tmp_path, shape, weights)
    tokens = np.random.default_rng(SEED).integers(2, vocab, (4, 60))
    wanted, found = (predictor(load_network(folder))(tokens) for folder in (train / "target", tmp_path))
    assert np.abs(found - wanted).mean() < 0.05 * np.abs(wanted).mean()
    assert (found.argmax(-1) == wanted.argmax(-1)).mean() > 0.9


def test_another_tokenizer_is_refused(train: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"must have the 1,024 tokens of tokenizer.json, not 300"):
        text.check_vocab(300, "target", "small")
    shutil.copytree(train, tmp_path / "other")
    tokenizer.save_tokenizer(tokenizer.train_tokenizer(["a"], vocab_size=258), tmp_path / "other" / "tokenizer.json")
    with pytest.raises(CompileError, match=r"vocab_size must be that of the tokenizer, 258, not"):
        networks.load_networks(tmp_path / "other")


def test_all_that_the_page_tells(train: Path, default: Path, words: Tokenizer, tmp_path: Path,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part is measured once, and the page is made of them."""
    documents = [("a.py", TEXT), ("b.py", TEXT[::2])]
    monkeypatch.setattr(measure, "load_corpus", lambda: corpus.Corpus(*(documents for _ in corpus.SPLITS)))
    monkeypatch.setattr(measure, "read_package", lambda package: type("Read", (), {"documents": documents}))
    monkeypatch.setattr(measure, "choose", lambda found: found)
    monkeypatch.setattr(measure, "CONTEXT", 32)
    monkeypatch.setattr(measure, "NEW_TOKENS", 12)
    monkeypatch.setattr(measure, "EXIT_WINDOWS", 2)
    monkeypatch.setattr(quality, "CONTEXT", 32)
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps({"sha256": "0", "prompts": [{"text": TEXT[:40]}, {"text": TEXT[20:70]}]}))
    copied = [measure.copies.Copy("a.py", TEXT[:36], 1, ()) for _ in range(2)]
    monkeypatch.setattr(measure.copies, "load_copies", lambda path: copied)
    out = tmp_path / "results" / "models.json"
    found = measure.measure(train, default, out, prompts=prompts, tests=tmp_path)
    names = [f"target, {kind}, held_out, 32" for kind in ("float", "int8", "int4 nearest", "int4 second-order")]
    lengths = [found[name]["bits_per_byte"] for name in names]
    assert max(lengths[:2]) / min(lengths[:2]) < 1.03
    assert len(set(lengths)) == 4
    began = out.read_bytes()
    measure.measure(train, default, out, prompts=prompts, tests=tmp_path)
    assert out.read_bytes() == began, "nothing is measured twice"
    monkeypatch.setattr(report, "DOCS", tmp_path)
    whole = " ".join(report.quality().split())
    assert f"{lengths[3]:.4f} ({lengths[3] / lengths[0] - 1:+.2%}) second-order" in whole
    assert "not measured yet" not in whole
    for part in [name for name in found if name not in ("files", "splits", "context", "seconds")]:
        out.write_text(json.dumps({name: value for name, value in found.items() if name != part}))
        assert report.quality(), part
    out.write_text(json.dumps({name: value for name, value in found.items() if not name.startswith("target, int4")}))
    assert "not measured yet" in report.quality()


def test_random_passes_cost_more_with_more_of_everything() -> None:
    shape = export.ModelShape(hidden_size=32, intermediate_size=64, num_layers=1, num_heads=2, head_dim=16,
                              vocab_size=128, max_positions=128)
    config = load_config("edge")
    near, far = (cycles.measure_passes(shape, config, (1, 8), context).cycles for context in (8, 100))
    assert near[1] < near[8] < far[8]
    assert near[1] < far[1]
