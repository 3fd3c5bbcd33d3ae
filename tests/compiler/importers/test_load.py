"""Directories that load: every family, type of numbers, shards, what may stand beside; tensors are made when asked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.importers import load_network
from gemmule.compiler.importers.weights import Source
from gemmule.compiler.ir import (
    Attention,
    Cache,
    Embedding,
    FloatInterpreter,
    Linear,
    Network,
    Norm,
    Rope,
    RopeScaling,
    Rows,
)

from ..families import ENCODERS, FAMILIES, Checkpoint, make, write


def logits(network: Network, tokens: list[int]) -> np.ndarray:
    return FloatInterpreter(network).forward(Rows.chain(tokens), Cache(network.graph))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head_dim", [24, 80])
def test_every_tensor_is_what_the_graph_says(family: str, head_dim: int, tmp_path: Path) -> None:
    made = make(family, head_dim=head_dim)
    network = load_network(write(tmp_path, made))
    graph = network.graph
    assert set(network.weights) == set(graph.tensors)
    assert len(network.weights) == len(graph.tensors)
    for name, tensor in graph.tensors.items():
        value = network.weights[name]
        assert (value.shape, value.dtype) == (tensor.shape, np.float32), name
        assert not value.flags.writeable
    assert (graph.layers, graph.vocab, graph.positions) == (5, 1003, 64)
    assert all(node.kv_heads == 3 and node.head_dim == head_dim for node in graph.attentions)
    stored = sum(value.size for value in made.tensors.values())
    assert sum(value.size for value in network.weights.values()) == stored - (
        2 * 3 * head_dim if family == "opt" else 0)  # the first two rows of its positions


def test_values_by_hand(tmp_path: Path) -> None:
    """Conv1D transposed and split, OPT's first positions left out, halves of a head as pairs."""
    made = make("gpt2")
    network, fused = load_network(write(tmp_path / "gpt2", made)), made.tensors["transformer.h.1.attn.c_attn.weight"]
    assert np.array_equal(network.weights["1.key.weight"][5], fused[:, 72 + 5])
    assert np.array_equal(network.weights["1.value.bias"], made.tensors["transformer.h.1.attn.c_attn.bias"][144:])
    assert np.array_equal(network.weights["1.down.weight"], made.tensors["transformer.h.1.mlp.c_proj.weight"].T)

    made = make("opt")
    network = load_network(write(tmp_path / "opt", made))
    assert np.array_equal(network.weights["position.table"][0], made.tensors["model.decoder.embed_positions.weight"][2])

    made = make("llama", attention_bias=True)
    network, plain = load_network(write(tmp_path / "llama", made)), made.tensors["model.layers.2.self_attn.q_proj.bias"]
    found = network.weights["2.query.bias"].reshape(6, 24)
    assert np.array_equal(found[4, 0::2], plain.reshape(6, 24)[4, :12])
    assert np.array_equal(found[4, 1::2], plain.reshape(6, 24)[4, 12:])
    assert np.array_equal(network.weights["2.value.bias"], made.tensors["model.layers.2.self_attn.v_proj.bias"])


def test_pairs_are_permuted_as_the_adjacent_layout_wants(tmp_path: Path) -> None:
    """The half-split checkpoint equals the adjacent one whose q and k were permuted by hand."""
    made = make("gemmule", rope_interleaved=False)
    half = load_network(write(tmp_path / "half", made))
    for name, value in made.tensors.items():
        if ".q_proj" in name or ".k_proj" in name:
            order = np.stack([np.arange(12), np.arange(12, 24)], 1).reshape(-1)
            heads = np.arange(len(value)).reshape(-1, 24)[:, order].reshape(-1)
            made.tensors[name] = value[heads]
    made.config["rope_interleaved"] = True
    adjacent = load_network(write(tmp_path / "adjacent", made))
    assert adjacent.graph == half.graph
    assert np.array_equal(logits(half, [3, 1, 4, 1, 5]), logits(adjacent, [3, 1, 4, 1, 5]))


@pytest.mark.parametrize("family", [*FAMILIES, *ENCODERS])
@pytest.mark.parametrize(("dtype", "shards"), [("bfloat16", 1), ("float16", 3), ("float64", 2), ("float32", 4)])
def test_types_and_shards(family: str, dtype: str, shards: int, tmp_path: Path) -> None:
    """The numbers that the type can hold, as float32; in however many files."""
    made = make(family)
    network = load_network(write(tmp_path / "a", made, dtype=dtype, shards=shards))
    plain = load_network(write(tmp_path / "b", made))
    assert network.graph == plain.graph
    for name, value in plain.weights.items():
        found = network.weights[name]
        assert found.dtype == np.float32
        if name == "positions.table":  # a sum of two stored ones
            assert np.abs(found - value).max() <= np.abs(value).max() * 2.0 ** -7
        elif dtype == "bfloat16":
            assert not (found.view(np.uint32) & 0xFFFF).any()
            assert np.abs(found - value).max() <= np.abs(value).max() * 2.0 ** -8
        else:
            assert np.array_equal(found, value.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_of_their_own_and_tied(family: str, tmp_path: Path) -> None:
    tied = load_network(write(tmp_path / "tied", make(family, tie_word_embeddings=True)))
    own = load_network(write(tmp_path / "own", make(family, tie_word_embeddings=False)))
    for network, wanted in ((tied, "embedding.table"), (own, "logits.weight")):
        table, head = network.graph.by_name["embedding"], network.graph.by_name["logits"]
        assert isinstance(table, Embedding)
        assert isinstance(head, Linear)
        assert head.bias is (family == "phi")
        assert (table.tensors["table"], head.tensors["weight"]) == ("embedding.table", wanted)


def test_our_own_form(tmp_path: Path) -> None:
    """What training writes: adjacent pairs, an MLP with a gate or without, keys of its own."""
    network = load_network(write(tmp_path, make("gemmule")))
    ops = [node.op for node in network.graph.nodes if node.layer == 0]
    assert ops.count("product") == 0
    assert ops.count("rope") == 2
    gated = make("gemmule", hidden_act="relu2")
    for layer in range(5):
        gated.tensors[f"model.layers.{layer}.mlp.gate_proj.weight"] = gated.tensors[
            f"model.layers.{layer}.mlp.up_proj.weight"]
    network = load_network(write(tmp_path, gated))
    assert [node.op for node in network.graph.nodes].count("product") == 5
    assert np.isfinite(logits(network, [1, 2])).all()


def _beside(made: Checkpoint, **tensors: np.ndarray) -> Checkpoint:
    made.tensors |= {name.replace("__", "."): value for name, value in tensors.items()}
    return made


@pytest.mark.parametrize(("family", "beside"), [
    ("gpt2", {"transformer__h__0__attn__bias": np.ones((1, 1, 64, 64), bool),
              "transformer__h__3__attn__masked_bias": np.array(-1e4, np.float32)}),
    ("llama", {"model__layers__1__self_attn__rotary_emb__inv_freq": np.ones(12, np.float32)}),
    ("opt", {"model__decoder__version": np.array([3], np.int32)}),
])
def test_what_old_versions_wrote_beside(family: str, beside: dict[str, np.ndarray], tmp_path: Path) -> None:
    network = load_network(write(tmp_path, _beside(make(family), **beside)))
    assert network.graph == load_network(write(tmp_path / "plain", make(family))).graph


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tied_head_beside_must_be_equal(dtype: str, tmp_path: Path) -> None:
    made = make("llama-tied")
    made.tensors["lm_head.weight"] = made.tensors["model.embed_tokens.weight"].copy()
    load_network(write(tmp_path, made, dtype=dtype, shards=2))
    made.tensors["lm_head.weight"][-1, -1] += 1
    with pytest.raises(CompileError, match=r"lm_head.weight must equal model.embed_tokens.weight, or tie_word_em"):
        load_network(write(tmp_path, made, dtype=dtype, shards=2))


@pytest.mark.parametrize(("family", "prefix"), [("gpt2", "transformer."), ("opt", "model."), ("llama-tied", "model.")])
def test_saved_without_its_head(family: str, prefix: str, tmp_path: Path) -> None:
    """A network saved as its base class has no prefix."""
    made = make(family)
    wanted = logits(load_network(write(tmp_path / "a", made)), [7, 8, 9])
    made.tensors = {name.removeprefix(prefix): value for name, value in made.tensors.items()}
    assert np.array_equal(logits(load_network(write(tmp_path / "b", made)), [7, 8, 9]), wanted)


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    """Loading reads headers alone: what is written over the numbers afterwards is what is found."""
    folder = write(tmp_path, make("llama"))
    network = load_network(folder)
    path = folder / "model.safetensors"
    header = int.from_bytes(path.read_bytes()[:8], "little")
    with path.open("r+b") as file:
        file.seek(8 + header)
        file.write(np.full(72, 5, np.float32).tobytes())  # the first row of the first tensor, the embedding
    assert (network.weights["embedding.table"][0] == 5).all()


def test_float32_stays_mapped(tmp_path: Path) -> None:
    """Where nothing changes there is no copy, transposed or not."""
    for family, name in (("llama", "3.up.weight"), ("gpt2", "3.up.weight")):
        network = load_network(write(tmp_path / family, make(family)))
        assert np.shares_memory(network.weights[name], network.weights[name])
    network = load_network(write(tmp_path / "half", make("llama"), dtype="float16"))
    assert not np.shares_memory(network.weights["3.up.weight"], network.weights["3.up.weight"])


def test_files_cut_after_loading(tmp_path: Path) -> None:
    folder = write(tmp_path, make("llama", layers=1))
    network = load_network(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(CompileError, match=r"model.safetensors: lm_head.weight has been cut off since"):
        network.weights["logits.weight"]


def test_links_to_a_store_elsewhere(tmp_path: Path) -> None:
    """The hub's cache keeps files by their hash and links to them."""
    folder = write(tmp_path / "blobs", make("llama"), shards=2)
    (tmp_path / "snapshot").mkdir()
    for path in folder.iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(Path("..") / "blobs" / path.name)
    assert load_network(tmp_path / "snapshot").graph.layers == 5


def test_windows(tmp_path: Path) -> None:
    """Mistral's is that of transformers; one that no row reaches is none."""
    def windows(**keys: object) -> set[int | None]:
        made = make("mistral", **keys)
        made.config = {key: value for key, value in made.config.items() if value != "absent"}
        return {node.window for node in load_network(write(tmp_path, made)).graph.attentions}

    assert windows() == {7}
    assert windows(sliding_window=63) == {63}
    assert windows(sliding_window=64) == {None}
    assert windows(sliding_window=None) == {None}
    assert windows(sliding_window="absent") == {None}
    made = make("mistral", max_position_embeddings=8192)
    del made.config["sliding_window"]
    assert {node.window for node in load_network(write(tmp_path, made)).graph.attentions} == {4096}


def test_defaults_are_those_of_transformers(tmp_path: Path) -> None:
    made = make("llama")
    for key in ("head_dim", "rms_norm_eps", "rope_theta", "rope_scaling", "hidden_act", "tie_word_embeddings",
                "num_key_value_heads"):
        del made.config[key]
    made.config["num_attention_heads"] = 3  # 72 / 3 = 24 columns
    for name in [name for name in made.tensors if ".q_proj" in name or ".o_proj" in name]:
        made.tensors[name] = made.tensors[name][:72, :72]
    graph = load_network(write(tmp_path, made)).graph
    attention, rope = graph.attentions[0], graph.by_name["0.query_rope"]
    assert (attention.heads, attention.kv_heads, attention.head_dim) == (3, 3, 24)
    assert isinstance(rope, Rope)
    assert rope.theta == 10000.0
    assert {node.eps for node in graph.nodes if isinstance(node, Norm)} == {1e-6}
    gpt2 = make("gpt2", n_inner=None)
    for name in [name for name in gpt2.tensors if ".mlp." in name]:
        shape = [288 if size == 100 else size for size in gpt2.tensors[name].shape]
        gpt2.tensors[name] = np.zeros(shape, np.float32)
    for key in ("activation_function", "layer_norm_epsilon"):
        del gpt2.config[key]
    up = load_network(write(tmp_path, gpt2)).graph.by_name["0.up"]
    assert up.columns == 288


def test_attention_scales(tmp_path: Path) -> None:
    def scales(family: str, **keys: object) -> list[float]:
        graph = load_network(write(tmp_path, make(family, **keys))).graph
        return [node.scale for node in graph.nodes if isinstance(node, Attention)]

    one = 24 ** -0.5
    assert scales("llama") == scales("opt") == scales("gpt2") == [one] * 5
    assert scales("gpt2", scale_attn_weights=False) == [1.0] * 5
    assert scales("gpt2", scale_attn_by_inverse_layer_idx=True) == [one / at for at in (1, 2, 3, 4, 5)]


def test_steps_of_a_source_know_their_shapes() -> None:
    source = Source.of("x", 12, 36).transposed().rows(12, 24).adjacent_pairs(3)
    assert source.take(np.zeros((12, 36))).shape == source.shape == (12, 12)
    assert source.stored == (12, 36)


def test_keys_that_real_files_have(tmp_path: Path) -> None:
    """config.json as the hub has it for GPT-2, OPT-125M, TinyLlama, SmolLM2 and Mistral, sizes aside."""
    real = {
        "gpt2": {"attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
                 "initializer_range": 0.02, "n_ctx": 1024, "resid_pdrop": 0.1, "summary_activation": None,
                 "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
                 "summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True}}},
        "opt": {"_name_or_path": "facebook/opt-125m", "activation_dropout": 0.0, "attention_dropout": 0.0,
                "bos_token_id": 2, "dropout": 0.1, "eos_token_id": 2, "init_std": 0.02, "layerdrop": 0.0,
                "pad_token_id": 1, "prefix": "</s>", "transformers_version": "4.21.0.dev0", "use_cache": True,
                "layer_norm_elementwise_affine": True, "enable_bias": True},
        "llama": {"_name_or_path": "x", "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02,
                  "pretraining_tp": 1, "transformers_version": "4.35.0", "use_cache": True, "attention_bias": False},
        "llama-tied": {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {
            "kv_cache_dtype": {"q4f16": "float16"}}, "pad_token_id": 2, "mlp_bias": False, "attention_dropout": 0.0},
        "mistral": {"attention_dropout": 0.0, "bos_token_id": 1, "transformers_version": "4.42.0.dev0"},
    }
    for family, keys in real.items():
        assert load_network(write(tmp_path, make(family, **keys))).graph.layers == 5


def test_notes(tmp_path: Path) -> None:
    """Keys that nothing reads are told in a line, and so is what is cut; where there is neither there is no line."""
    def notes(family: str, **keys: object) -> tuple[str, ...]:
        made = make(family, layers=1, vocab=40)
        made.config |= keys
        return load_network(write(tmp_path / "model", made)).notes

    at = f"{tmp_path}/model/config.json: "
    assert notes("llama") == ()
    assert notes("llama", use_cache=True, _by="me", _remove_final_layer_norm=True) == (
        f"{at}keys that change nothing here: use_cache, _by, _remove_final_layer_norm",)
    assert notes("opt", _by="me", _remove_final_layer_norm=False) == (
        f"{at}keys that change nothing here: dropout, _by",)
    assert notes("mistral", attention_bias=True, max_position_embeddings=131072) == (
        f"{at}keys that change nothing here: attention_bias",
        f"{at}max_position_embeddings is cut from 131,072 to 65,536: positions have 16 bits on the device")
    many = {f"_{number}": number for number in range(50)}
    (line,) = notes("llama", **many)
    assert line.endswith("_38, _39 and 10 more")


def test_cut_positions(tmp_path: Path) -> None:
    """A rotary network keeps its angles: Llama 3's bands are those of the whole length where none is told."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    made = make("llama", layers=1, vocab=40, max_position_embeddings=131072, rope_scaling=scaling)
    graph = load_network(write(tmp_path, made)).graph
    rope = graph.by_name["0.query_rope"]
    assert isinstance(rope, Rope)
    assert graph.positions == rope.positions == 65536
    assert rope.scaling == RopeScaling(factor=8.0, bands=(1.0, 4.0, 131072))


def test_windows_of_qwen(tmp_path: Path) -> None:
    def windows(**keys: object) -> list[int | None]:
        graph = load_network(write(tmp_path, make("qwen2", layers=3, **keys))).graph
        return [node.window for node in graph.attentions]

    asked = {"use_sliding_window": True, "sliding_window": 5}
    assert windows(sliding_window=5, max_window_layers=0) == [None] * 3
    assert windows(**asked, max_window_layers=1) == [None, 5, 5]
    assert windows(**asked, max_window_layers=3) == [None] * 3
    assert windows(**asked, layer_types=["sliding_attention", "full_attention", "sliding_attention"]) == [5, None, 5]
    assert windows(**asked | {"sliding_window": 64}, max_window_layers=0) == [None] * 3
    assert windows(**asked | {"sliding_window": None}, max_window_layers=0) == [None] * 3


def test_a_head_of_gpt_neox(tmp_path: Path) -> None:
    """q, k and v of a head lie side by side; the first columns of a head are rotated and so in pairs."""
    made = make("gpt_neox")
    network = load_network(write(tmp_path, made))
    fused = made.tensors["gpt_neox.layers.1.attention.query_key_value.bias"].reshape(3, 3, 24)
    key, value = (network.weights[f"1.{name}.bias"].reshape(3, 24) for name in ("key", "value"))
    assert np.array_equal(value, fused[:, 2])
    assert np.array_equal(key[:, 6:], fused[:, 1, 6:])
    assert np.array_equal(key[:, 0:6:2], fused[:, 1, :3])
    assert np.array_equal(key[:, 1:6:2], fused[:, 1, 3:6])
    order = [node.name for node in network.graph.nodes if node.layer == 1]
    assert order.index("1.norm2") < order.index("1.middle")
    assert network.graph.by_name["1.norm2"].inputs == network.graph.by_name["1.norm1"].inputs
    assert not network.graph.wide_norms


def test_the_folder_may_be_text(tmp_path: Path) -> None:
    assert load_network(str(write(tmp_path, make("opt", layers=1)))).graph.family == "opt"
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "opt"
