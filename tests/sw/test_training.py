"""The training recipe without torch: corpus split, tokenizer, checkpoint files."""

import random
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import tokenizers

from gemmule.compiler.files.model_file import load_model
from gemmule.sw.models import bundled
from gemmule.sw.text import byte_level, corpus
from gemmule.sw.training import yardstick
from gemmule.sw.training.data import tokenizer
from gemmule.sw.training.networks import export
from gemmule.sw.training.networks import trained as networks
from gemmule.sw.training.stages import bundle

TINY_TEXT = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n" * 20


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A small tree of source files, with some that must be left out."""
    for index in range(400):
        file = tmp_path / f"package{index % 7}" / f"module{index}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"VALUE = {index}\n", encoding="utf-8")
    for excluded in ("test/test_a.py", "package1/tests/b.py", "encodings/c.py", "site-packages/d.py"):
        file = tmp_path / excluded
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("EXCLUDED = True\n", encoding="utf-8")
    (tmp_path / "_sysconfigdata_x86.py").write_text("EXCLUDED = True\n", encoding="utf-8")
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    (tmp_path / "notes.txt").write_text("EXCLUDED\n", encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def tiny() -> "tokenizers.Tokenizer":
    return tokenizer.train_tokenizer([TINY_TEXT], vocab_size=300)


def test_split_is_deterministic(library: Path) -> None:
    first, second = corpus.load_corpus(library), corpus.load_corpus(library)
    assert first == second
    assert first.digests() == second.digests()


def test_split_is_disjoint_and_complete(library: Path) -> None:
    parts = corpus.load_corpus(library)
    names = [[name for name, _ in parts.split(split)] for split in corpus.SPLITS]
    assert all(group == sorted(group) for group in names)
    together = [name for group in names for name in group]
    assert len(together) == len(set(together)) == 400
    assert all(names), "each split holds some files"
    assert not any("EXCLUDED" in text for split in corpus.SPLITS for _, text in parts.split(split))


def test_split_depends_on_the_path_alone(library: Path) -> None:
    before = corpus.load_corpus(library)
    relative = before.held_out[0][0]
    (library / relative).write_text("CHANGED = 1\n", encoding="utf-8")
    after = corpus.load_corpus(library)
    assert (relative, "CHANGED = 1\n") in after.held_out
    assert before.digests()["train"] == after.digests()["train"]
    assert before.digests()["held_out"] != after.digests()["held_out"]


def test_split_shares() -> None:
    names = [corpus.split_of(f"package/module_{index}.py") for index in range(20000)]
    assert names.count("calibration") / 200 == pytest.approx(corpus.CALIBRATION_PERCENT, abs=0.5)
    assert names.count("held_out") / 200 == pytest.approx(corpus.HELD_OUT_PERCENT, abs=0.5)


def test_known_paths_keep_their_split() -> None:
    # Pinned: a change of the rule would let held-out text into the training of the bundled models.
    expected = {"argparse.py": "train", "copy.py": "calibration", "enum.py": "held_out"}
    assert {name: corpus.split_of(name) for name in expected} == expected


def test_standard_library_is_usable() -> None:
    parts = corpus.load_corpus()
    sizes = parts.sizes()
    assert sizes["train"] > 10 * sizes["held_out"] > 0
    assert sizes["calibration"] > 0


@pytest.mark.parametrize(
    ("path", "included"),
    [
        ("heapq.py", True),
        ("json/decoder.py", True),
        ("test.py", True),
        ("unittest/test/support.py", False),
        ("lib2to3/pytree.py", False),
        ("json/__pycache__/decoder.py", False),
        ("_sysconfigdata__linux.py", False),
        ("README.txt", False),
    ],
)
def test_inclusion(path: str, included: bool) -> None:
    assert corpus.is_included(PurePosixPath(path)) is included


def test_unknown_split_is_named(library: Path) -> None:
    with pytest.raises(ValueError, match="'test'"):
        corpus.load_corpus(library).split("test")


def test_digest_sees_boundaries() -> None:
    assert corpus.digest([("a", "bc")]) != corpus.digest([("ab", "c")])


def test_special_ids(tiny: "tokenizers.Tokenizer") -> None:
    assert tiny.token_to_id("<pad>") == byte_level.PAD_ID == 0
    assert tiny.token_to_id("<eos>") == byte_level.EOS_ID == 1
    # The tiny text runs out of pairs before 300; all bytes and both special tokens are there.
    assert 258 < tiny.get_vocab_size() <= 300


@pytest.mark.parametrize(
    "text",
    ["", " ", "def f():\n\treturn  1\r\n", " leading and trailing ", "naïve ☃ 𝄞", "\x00\x01\x7f", "a <eos> b<pad>"],
)
def test_round_trip(tiny: "tokenizers.Tokenizer", text: str) -> None:
    ids = byte_level.encode(tiny, text)
    assert tiny.decode(ids, skip_special_tokens=True) == text
    assert byte_level.EOS_ID not in ids, "a text never contains the special token itself"
    assert byte_level.PAD_ID not in ids


def test_round_trip_of_random_text(tiny: "tokenizers.Tokenizer") -> None:
    generator = random.Random(7)
    for _ in range(200):
        text = "".join(
            chr(generator.choice([generator.randrange(128), generator.randrange(0xD800)])) for _ in range(40)
        )
        assert tiny.decode(byte_level.encode(tiny, text), skip_special_tokens=True) == text


def test_saved_tokenizer_is_the_same(tiny: "tokenizers.Tokenizer", tmp_path: Path) -> None:
    tokenizer.save_tokenizer(tiny, tmp_path / "tokenizer.json")
    loaded = byte_level.load_tokenizer(tmp_path / "tokenizer.json")
    for text in (TINY_TEXT, "a <eos> b"):
        assert byte_level.encode(loaded, text) == byte_level.encode(tiny, text)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def test_training_is_deterministic(tiny: "tokenizers.Tokenizer") -> None:
    assert tokenizer.train_tokenizer([TINY_TEXT], vocab_size=300).to_str() == tiny.to_str()


def test_too_small_vocabulary_is_named() -> None:
    with pytest.raises(ValueError, match="257"):
        tokenizer.train_tokenizer([TINY_TEXT], vocab_size=257)


def test_stream_puts_eos_between_files(tiny: "tokenizers.Tokenizer") -> None:
    stream = tokenizer.token_stream(tiny, [("a.py", "a = 1\n"), ("b.py", "b = 2\n")])
    assert stream.dtype == np.int64
    assert stream[0] == byte_level.EOS_ID
    assert int((stream == byte_level.EOS_ID).sum()) == 3
    assert stream[-1] == byte_level.EOS_ID
    assert tiny.decode(stream.tolist(), skip_special_tokens=True) == "a = 1\nb = 2\n"


def test_checkpoint_round_trip(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shapes = export.SMALL_DRAFT.weight_shapes()
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    export.save_checkpoint(tmp_path / "draft", export.SMALL_DRAFT, weights)
    loaded = export.load_checkpoint(tmp_path / "draft", export.SMALL_DRAFT)
    assert loaded.keys() == weights.keys()
    assert all(np.array_equal(loaded[name], weights[name]) for name in weights)


def test_wrong_checkpoint_is_named(tmp_path: Path) -> None:
    weights = {name: np.zeros(shape, np.float32) for name, shape in export.SMALL_DRAFT.weight_shapes().items()}
    del weights["model.norm.weight"]
    with pytest.raises(ValueError, match=r"model\.norm\.weight"):
        export.save_checkpoint(tmp_path, export.SMALL_DRAFT, weights)


def test_parameter_counts() -> None:
    assert [export.parameters(model) for model in (export.SMALL_TARGET, export.SMALL_DRAFT)] == [1312384, 114880]
    assert 5e6 <= export.parameters(export.TARGET) <= 8e6


def test_windows_follow_their_key() -> None:
    stream = np.arange(1000)
    first, again = (tokenizer.draw_windows(stream, 4, 257, (1, 0, 5)) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, tokenizer.draw_windows(stream, 4, 257, (1, 0, 6)))
    assert np.array_equal(np.diff(first), np.ones((4, 256)))
    assert np.array_equal(tokenizer.draw_windows(stream, 1, 1000, (1,))[0], stream)
    with pytest.raises(ValueError, match="1000"):
        tokenizer.draw_windows(stream, 1, 1001, (1,))


@pytest.mark.parametrize("tokens", [2, 256, 257, 258, 5000])
def test_uniform_model_costs_log2_of_the_vocabulary(tokens: int) -> None:
    stream = np.random.default_rng(1).integers(0, 1024, tokens)
    bits = yardstick.bits_per_byte(lambda ids: np.zeros((*ids.shape, 1024), np.float32), stream, tokens - 1)
    assert bits == pytest.approx(10.0)


def test_bits_per_byte_aligns_logits_with_the_next_token() -> None:
    stream = np.random.default_rng(2).permutation(1000)
    following = dict(zip(stream[:-1].tolist(), stream[1:].tolist(), strict=True))

    def oracle(ids: yardstick.Tokens) -> np.ndarray:
        logits = np.zeros((*ids.shape, 1024), np.float32)
        wanted = np.vectorize(following.__getitem__)(ids)
        np.put_along_axis(logits, wanted[..., None], 100.0, -1)
        return logits

    assert yardstick.bits_per_byte(oracle, stream, 999) == pytest.approx(0.0, abs=1e-9)
    assert yardstick.agreement(oracle, stream[None], 10) == 1.0


def test_distinct_share_sees_loops() -> None:
    assert yardstick.distinct_share(np.arange(100)[None]) == 1.0
    assert yardstick.distinct_share(np.tile(np.arange(5), 20)[None]) == pytest.approx(5 / 97)


def test_bundle_writes_what_is_loaded(tiny: "tokenizers.Tokenizer", tmp_path: Path) -> None:
    """From what training writes to bundled files that pass their manifest; a second bundle changes no byte."""
    shape = export.ModelShape(hidden_size=8, intermediate_size=16, num_layers=1, num_heads=2, head_dim=4,
                              vocab_size=tiny.get_vocab_size())
    weights = np.random.default_rng(5)
    for name in networks.NETWORKS:
        export.save_checkpoint(tmp_path / "train" / name, shape, {
            key: weights.standard_normal(size).astype(np.float32) for key, size in shape.weight_shapes().items()})
    tokenizer.save_tokenizer(tiny, tmp_path / "train" / "tokenizer.json")
    text = corpus.Corpus(*([(f"{split}.py", TINY_TEXT * 4)] for split in corpus.SPLITS))
    kept = []
    for _ in range(2):
        loaded, trained = networks.load_networks(tmp_path / "train")
        numbers = bundle.bundle(loaded, trained, tmp_path / "out", text, windows=2, eval_tokens=300, seed=1)
        assert numbers["held_out_tokens"] == 300
        for role in bundled.FILES:
            path = bundled.bundled_file(tmp_path / "out", role)
            assert role == "tokenizer" or load_model(path).network.graph.vocab == loaded.get_vocab_size()
        kept.append({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    assert kept[0] == kept[1]
    assert sorted(kept[0]) == sorted([*bundled.FILES.values(), bundled.MANIFEST])
