"""What training drafters needs without torch: packs, prompts, acceptance by ranks, predicted speed-ups."""

import json

import numpy as np
import pytest

from gemmule.sw.prompts.requests import FILE
from gemmule.sw.text.corpus import load_corpus
from gemmule.sw.training.drafters.packed import BLOCK, Shape, dequantise, quantised_bytes, read_pack, write_pack
from gemmule.sw.training.drafters.page import predicted
from gemmule.sw.training.drafters.prompts import ABOUT_PASSAGES, requests_about
from gemmule.sw.training.drafters.ranks import (
    TOP,
    Ranks,
    accepted_by,
    grow,
    load_ranks,
    save_ranks,
    summary,
    tokens_a_step,
)

SHAPE = Shape(hidden=64, layers=1, heads=2, kv_heads=1, inner=32, vocab=10, theta=1e4, eps=1e-5)


def some_ranks(seed: int = 0) -> Ranks:
    """Ranks of 30 texts of two categories."""
    draws = np.random.default_rng(seed)
    counts = draws.integers(1, 20, 30)
    values = np.minimum(draws.geometric(0.6, (counts.sum(), 5)) - 1, TOP).astype(np.int8)
    return Ranks(values, counts, tuple(["code", "held out code", "chat"][at % 3] for at in range(30)))


def test_a_pack_gives_back_what_was_put_in(tmp_path):
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(5, np.float32)}
    lists = {"asked": [("code", [1, 2, 3]), ("passage", [4])], "requests": [("chat", [5, 6])]}
    paths = write_pack(tmp_path, SHAPE, quantised_bytes(tensors), [7], [8, 9], 2, lists, parts=3)
    pack = read_pack(tmp_path)
    assert [path.name for path in paths] == ["pack.json", "tokens.npz", *(f"target-{at}.bin" for at in range(3))]
    assert pack.shape == SHAPE
    assert pack.end == 2
    for name, value in tensors.items():
        np.testing.assert_array_equal(pack.tensors[name], value)
    assert [text.tolist() for text in pack.lists["asked"]] == [[1, 2, 3], [4]]
    assert pack.names == {"asked": ["code", "passage"], "requests": ["chat"]}
    (tmp_path / "target-1.bin").unlink()
    with pytest.raises(ValueError, match=r"lacks target-1.bin: bring all parts"):
        read_pack(tmp_path)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_quantised_tensors_mean_what_gguf_says(kind):
    from gguf import GGMLQuantizationType, dequantize, quantize

    values = np.random.default_rng(0).normal(size=(3, 4 * BLOCK)).astype(np.float32)
    packed = quantize(values, GGMLQuantizationType[kind])
    found = dequantise(kind, packed.reshape(-1), values.shape)
    np.testing.assert_array_equal(found, dequantize(packed, GGMLQuantizationType[kind]))
    with pytest.raises(ValueError, match="must be F32, Q8_0 or Q4_1, not Q6_K"):
        dequantise("Q6_K", packed, values.shape)


@pytest.mark.long
def test_training_prompts_are_none_that_judge():
    asked = requests_about(load_corpus(), 1)
    texts = [text for _, text in asked]
    judging = [one["text"] for group in json.loads(FILE.read_text())["prompts"].values() for one in group]
    assert len(texts) > 10_000
    assert len(set(texts)) == len(texts)
    assert asked == requests_about(load_corpus(), 1)
    assert not set(texts) & set(judging)
    assert not [text for text in judging if text.startswith(ABOUT_PASSAGES)]


def test_a_step_commits_what_is_accepted_and_one_more():
    assert tokens_a_step([0, 0, 0]) == (3, 3)
    assert tokens_a_step([2, 9, 9, 0]) == (4, 2)
    assert tokens_a_step([5, 5]) == (2, 1)  # no more than there are
    assert tokens_a_step([]) == (0, 0)


def test_a_tree_accepts_its_longest_path_that_the_ranks_follow():
    ranks = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0], [2, 0, 0], [TOP, 0, 0]], np.int8)
    assert accepted_by(ranks, [(0,), (0, 1), (1,), (0, 1, 0), (1, 0)]).tolist() == [1, 3, 2, 0, 0]


def test_a_chain_is_a_tree_of_first_ranks():
    ranks = some_ranks()
    chain = [(0,) * depth for depth in range(1, 6)]
    found = summary(ranks, chain)
    assert found["tokens_a_step_of_tree"] == found["tokens_a_step"][-1]
    assert found["tokens_a_step"] == sorted(found["tokens_a_step"])
    assert found["reached"] == sorted(found["reached"], reverse=True)


def test_a_tree_is_grown_from_what_occurs_most():
    values = some_ranks().values
    tree = grow(values, 12)
    assert len(tree) == len(set(tree)) == 12
    assert all(path[:-1] in tree or len(path) == 1 for path in tree)
    for nodes in (1, 4, 11):
        assert set(grow(values, nodes)) <= set(tree)
    assert accepted_by(values, tree).sum() >= accepted_by(values, [(0,) * depth for depth in range(1, 6)]).sum()


def test_a_drafter_that_finds_nothing_grows_no_tree():
    lost = Ranks(np.full((9, 3), TOP, np.int8), np.array([4, 5]), ("code", "chat"))
    assert grow(lost.values, 7) == []
    assert summary(lost, [])["tokens_a_step_of_tree"] == summary(lost)["tokens_a_step"][0] == 1.0


def test_ranks_survive_a_file_and_are_told_by_category(tmp_path):
    ranks = some_ranks()
    save_ranks({"eagle": ranks}, tmp_path / "ranks.npz")
    found = load_ranks(tmp_path / "ranks.npz")["eagle"]
    np.testing.assert_array_equal(found.values, ranks.values)
    groups = found.groups()
    assert groups["requests"] == ("chat", "code")
    assert groups["held out"] == ("held out code",)
    parts = [found.where(groups[name]) for name in ("requests", "held out")]
    assert sum(len(part.values) for part in parts) == len(ranks.values)
    assert all(part.counts.sum() == len(part.values) for part in parts)


def test_predicted_speed_up_counts_drafting_and_rows():
    assert predicted(2.0, 0, 0, 0.1) == 2.0
    assert predicted(2.0, 5, 0, 0.1) == pytest.approx(2.0 / 1.5)
    assert predicted(2.0, 0, 15, 0.1) == pytest.approx(2.0 / 1.06)
