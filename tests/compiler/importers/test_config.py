"""Every rule of config.json: one line that names the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.importers import FAMILIES, load_network
from gemmule.compiler.importers.config import ACTIVATIONS, HARMLESS, ActivationName, Keys
from gemmule.compiler.importers.families.bert import BertKeys
from gemmule.compiler.importers.families.gpt2 import Gpt2Keys
from gemmule.compiler.importers.families.gpt_neox import GptNeoxKeys
from gemmule.compiler.importers.families.llama import GemmuleKeys, LlamaKeys, MistralKeys
from gemmule.compiler.importers.families.opt import OptKeys
from gemmule.compiler.importers.families.phi import PhiKeys
from gemmule.compiler.importers.families.qwen import Qwen2Keys, Qwen3Keys

from ..families import make, write

RECORDS: dict[str, type[Keys]] = {"gpt2": Gpt2Keys, "opt": OptKeys, "llama": LlamaKeys, "mistral": MistralKeys,
                               "gemmule": GemmuleKeys, "qwen2": Qwen2Keys, "qwen3": Qwen3Keys,
                               "gpt_neox": GptNeoxKeys, "bert": BertKeys, "phi": PhiKeys}
ABSENT = object()


def refused(folder: Path, family: str, **keys: Any) -> str:
    """The line that a config with other keys is refused with."""
    made = make(family, layers=1, vocab=40)
    made.config = {key: value for key, value in (made.config | keys).items() if value is not ABSENT}
    write(folder, made)
    with pytest.raises(CompileError) as caught:
        load_network(folder)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 600
    assert text.startswith(f"{folder}/config.json: "), text
    return text.removeprefix(f"{folder}/config.json: ")


RULES: list[tuple[str, dict[str, Any], str]] = [
    # which family
    ("llama", {"model_type": "bloom"}, "model_type is 'bloom'; supported: bert, gemmule, gpt2, gpt_neox, llama, "
                                        "mistral, opt, phi, qwen2, qwen3"),
    ("llama", {"model_type": ABSENT}, "model_type is missing; supported: bert, gemmule, gpt2"),
    ("llama", {"model_type": ["llama"]}, "model_type is ['llama']"),
    ("llama", {"architectures": ["LlamaForSequenceClassification"]},
     "architectures names 'LlamaForSequenceClassification'; supported of model_type llama: LlamaForCausalLM"),
    ("gpt2", {"architectures": "GPT2LMHeadModel"}, "architectures must be a list of names, not 'GPT2LMHeadModel'"),
    ("gpt2", {"architectures": [1]}, "architectures must be a list of names"),
    # what changes the arithmetic
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention must be false, not true: an encoder that a decoder"),
    ("gpt2", {"is_encoder_decoder": True}, "is_encoder_decoder must be false, not true"),
    ("gpt2", {"activation_function": "quick_gelu"}, "activation_function must be 'gelu', "),
    ("opt", {"cross_attention_hidden_size": 72}, "cross_attention_hidden_size must be null or absent, not 72: an enc"),
    ("gpt2", {"pruned_heads": {"1": [2]}}, "pruned_heads must be empty, not {'1': [2]}: heads that differ"),
    ("gpt2", {"quantization_config": {"bits": 4}}, "quantization_config must be null or absent, not {'bits': 4}: quan"),
    ("gpt2", {"auto_map": {"AutoModel": "x.Y"}}, "auto_map must be null or absent"),
    ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before must be true, not false: norms after"),
    ("opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine must be true, not false"),
    ("opt", {"_remove_final_layer_norm": True}, "_remove_final_layer_norm must be false, not true: the norm"),
    ("opt", {"word_embed_proj_dim": 36}, "word_embed_proj_dim must be hidden_size = 72, not 36: projected"),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
     "rope_type must be default, linear or llama3, not 'dynamic': other scalings of rotary positions are not su"),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type must be default, linear or"),
    ("llama", {"rope_parameters": {"factor": 2.0}}, "factor = 2.0 does not belong to rope_type default: remove it, or"),
    ("llama", {"rope_scaling": {"type": "linear"}}, "rope_type linear needs factor"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 0.5}}, "rope_scaling.factor must be at least 1.0, not 0.5"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0, "low_freq_factor": 1.0}},
     "low_freq_factor = 1.0 does not belong to rope_type linear"),
    ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}},
     "rope_type llama3 needs high_freq_factor"),
    ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0}},
     "low_freq_factor must be less than high_freq_factor = 4.0, not 4.0"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 1.0}}, "rope_scaling.mscale = 1.0 is not k"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_theta": 1e4}},
     "rope_scaling must be what rope_parameters is, not another one: keep one"),
    ("llama", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rope_parameters.full_attention"),
    ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1, not 0.5"),
    ("llama", {"rope_parameters": {"rope_theta": 5e5}}, "rope_theta must be that of rope_parameters, 500000.0, not"),
    ("llama", {"partial_rotary_factor": 0.25}, "partial_rotary_factor must be 1, not 0.25: only whole heads"),
    ("llama", {"sliding_window": 4096}, "sliding_window must be null or absent, not 4096: only Mistral and Qwen"),
    ("llama", {"rope_interleaved": True}, "rope_interleaved must be false, not true: adjacent rotary pairs are the la"),
    ("mistral", {"rope_interleaved": True}, "rope_interleaved must be false, not true"),
    ("qwen2", {"rope_interleaved": True}, "rope_interleaved must be false, not true"),
    ("qwen3", {"rope_interleaved": True}, "rope_interleaved must be false, not true"),
    ("phi", {"rope_interleaved": True}, "rope_interleaved = true is not known here"),
    ("llama", {"hidden_act": "gegelu"}, "hidden_act must be 'gelu', "),
    ("gemmule", {"rope_interleaved": "no"}, "rope_interleaved must be true or false, not 'no'"),
    ("gemmule", {"sliding_window": 7}, "sliding_window must be null or absent, not 7: only Mistral and Qwen"),
    ("mistral", {"sliding_window": 0}, "sliding_window must be at least 1, not 0"),
    ("qwen2", {"layer_types": ["sliding_attention"]}, "layer_types must not name sliding_attention where use_sliding_"),
    ("qwen2", {"layer_types": ["full_attention"] * 2}, "layer_types must name each of num_hidden_layers = 1 layers, n"),
    ("qwen2", {"layer_types": ["linear_attention"]}, "layer_types.0 must be 'full_attention' or 'sliding_attention', "),
    ("qwen2", {"use_sliding_window": 1}, "use_sliding_window must be true or false, not 1"),
    ("qwen3", {"head_dim": None}, "head_dim must be an integer, not None"),
    ("qwen3", {"head_dim": 25}, "head_dim must be a multiple of 2, not 25"),
    ("qwen3", {"num_key_value_heads": ABSENT}, "num_attention_heads must be a multiple of num_key_value_heads = 32, n"),
    ("gpt_neox", {"rotary_pct": 0.05}, "rotary_pct must rotate an even number of a head's 24 columns, not 1"),
    ("gpt_neox", {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be that of rotary_pct, 0.25, not 0.5: ke"),
    ("gpt_neox", {"rope_theta": 5e5}, "rope_theta must be that of rotary_emb_base, 10000"),
    ("gpt_neox", {"rope_parameters": {"rope_theta": 5e5}}, "rotary_emb_base must be that of rope_parameters, 500000.0"),
    ("gpt_neox", {"num_attention_heads": 5}, "hidden_size must be a multiple of num_attention_heads = 5, not 72"),
    ("gpt_neox", {"num_key_value_heads": 1}, "num_key_value_heads = 1 is not known here"),
    ("phi", {"qk_layernorm": True}, "qk_layernorm must be false, not true: norms of q and k are not supported"),
    ("phi", {"rope_scaling": {"factor": 2.0}}, "factor = 2.0 does not belong to rope_type default"),
    ("phi", {"partial_rotary_factor": 0.05}, "partial_rotary_factor must rotate an even number of a head's 24 columns"),
    ("phi", {"partial_rotary_factor": 1.5}, "partial_rotary_factor must be at most 1.0, not 1.5"),
    ("phi", {"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial_rotary_factor must be that of rope_param"),
    ("phi", {"rope_parameters": {"rope_theta": 5e5}}, "rope_theta must be that of rope_parameters, 500000.0, not"),
    ("phi", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type must be default, linear or llama3, not 'yar"),
    ("phi", {"num_key_value_heads": 2}, "num_attention_heads must be a multiple of num_key_value_heads = 2, not 3"),
    ("bert", {"position_embedding_type": "relative_key"},
     "position_embedding_type must be 'absolute', not 'relative_key': only learned positions are supported"),
    ("bert", {"is_decoder": True}, "is_decoder must be false, not true: only encoders have layers like these"),
    ("bert", {"architectures": ["BertForMaskedLM"]}, "architectures names 'BertForMaskedLM'; supported of model_type "
                                                     "bert: BertModel, BertForSequenceClassification"),
    ("bert", {"architectures": ["BertForSequenceClassification"]}, "architectures must be ['BertModel'], of which the "
                                                                   "tensors are those, not ['BertForSequenceClass"),
    ("bert-classifier", {"architectures": ["BertModel"]}, "architectures must be ['BertForSequenceClassification'], o"),
    ("bert-classifier", {"num_labels": 3}, "num_labels must be that of id2label, 5, not 3"),
    ("bert-classifier", {"id2label": {}}, "id2label must name at least one label, not {}"),
    ("bert-classifier", {"id2label": ["a", "b"]}, "id2label must hold fields of its own, not ['a', 'b']"),
    # unknown ones
    ("bert", {"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon = 1e-05 is not known here and may change what the netw"),
    ("bert", {"embedding_size": 36}, "embedding_size = 36 is not known here"),
    ("llama", {"logit_scale": 0.5}, "logit_scale = 0.5 is not known here and may change what the network computes; r"),
    ("llama", {"query_pre_attn_scalar": None}, "query_pre_attn_scalar = null is not known here"),
    ("llama", {"num_key_value_head": 3}, "num_key_value_head = 3 is not known here and may change what the network "
                                         "computes; did you mean num_key_value_heads?"),
    ("llama", {"layer_types": ["full_attention"]}, "layer_types = ['full_attention'] is not known here"),
    ("llama", {"per_layer_config": {"0": {}}}, "per_layer_config = "),
    ("gpt2", {"hidden_size": 72}, "hidden_size = 72 is not known here"),
    ("gpt2", {"rope_theta": 10000.0}, "rope_theta = 10000.0 is not known here"),
    ("opt", {"n_ctx": 64}, "n_ctx = 64 is not known here"),
    # sizes
    ("gpt2", {"vocab_size": 262145}, "vocab_size must be at most 262,144, not 262145: token ids have 18 bits"),
    ("opt", {"vocab_size": 300000}, "vocab_size must be at most 262,144, not 300000: token ids have 18 bits"),
    ("llama", {"vocab_size": 10**12}, "vocab_size must be at most 262,144, not 1000000000000: token ids have 18 bits"),
    ("llama", {"vocab_size": "40"}, "vocab_size must be an integer, not '40'"),
    ("llama", {"vocab_size": True}, "vocab_size must be an integer, not true"),
    ("llama", {"vocab_size": ABSENT}, "vocab_size is missing"),
    ("gpt2", {"n_positions": 131072}, "n_positions must be at most 65,536, not 131072"),
    ("llama", {"max_position_embeddings": 1 << 40}, "max_position_embeddings must be at most 2,147,483,648, not 10995"),
    ("llama", {"max_position_embeddings": 0}, "max_position_embeddings must be at least 1, not 0"),
    ("llama", {"num_hidden_layers": 1.0}, "num_hidden_layers must be an integer, not 1.0"),
    ("llama", {"num_hidden_layers": 10**6}, "num_hidden_layers must be at most 1,024, not 1000000"),
    ("llama", {"intermediate_size": -16}, "intermediate_size must be at least 1, not -16"),
    ("llama", {"hidden_size": 1 << 17}, "hidden_size must be less than 131,072, not 131072"),
    ("llama", {"num_attention_heads": 0}, "num_attention_heads must be at least 1, not 0"),
    ("llama", {"num_attention_heads": 7}, "num_attention_heads must be a multiple of num_key_value_heads = 3, not 7"),
    ("llama", {"num_attention_heads": 9, "head_dim": None, "hidden_size": 75},
     "hidden_size must be a multiple of num_attention_heads = 9, not 75"),
    ("llama", {"num_attention_heads": 24, "head_dim": None}, "hidden_size must be an even multiple of num_attention_h"),
    ("llama", {"head_dim": 5}, "head_dim must be a multiple of 2, not 5"),
    ("llama", {"num_attention_heads": 1023, "head_dim": 8192}, "num_attention_heads * head_dim must be less than 131,"),
    ("llama", {"rms_norm_eps": "1e-5"}, "rms_norm_eps must be a number, not '1e-5'"),
    ("llama", {"rms_norm_eps": 0}, "rms_norm_eps must be greater than 0"),
    ("llama", {"rope_theta": -1}, "rope_theta must be at least 1.0, not -1"),
    ("llama", {"tie_word_embeddings": "false"}, "tie_word_embeddings must be true or false, not 'false'"),
    ("gpt2", {"n_head": 5}, "n_embd must be a multiple of n_head = 5, not 72"),
    ("gpt2", {"n_embd": 16384, "n_head": 1}, "n_embd must be at most 8,192 times n_head = 1, not 16,384"),
    ("gpt2", {"n_embd": 1 << 15, "n_head": 64, "n_inner": None}, "4 * n_embd must be less than 131,072 where n_inner"),
    ("gpt2", {"n_inner": 0}, "n_inner must be at least 1, not 0"),
    ("gpt2", {"layer_norm_epsilon": 1.0}, "layer_norm_epsilon must be less than 1"),
    ("opt", {"num_attention_heads": 5}, "hidden_size must be a multiple of num_attention_heads = 5, not 72"),
    ("opt", {"ffn_dim": ABSENT}, "ffn_dim is missing"),
    ("bert", {"num_attention_heads": 5}, "hidden_size must be a multiple of num_attention_heads = 5, not 72"),
    ("bert", {"type_vocab_size": 0}, "type_vocab_size must be at least 1, not 0"),
    ("bert", {"type_vocab_size": 9, "max_position_embeddings": 8192},
     "type_vocab_size * max_position_embeddings must be at most 65,536, not 73,728"),
    ("bert", {"layer_norm_eps": 0}, "layer_norm_eps must be greater than 0"),
]


@pytest.mark.parametrize(("family", "keys", "says"), RULES, ids=lambda value: value if isinstance(value, str) else "")
def test_refused(family: str, keys: dict[str, Any], says: str, tmp_path: Path) -> None:
    found = refused(tmp_path, family, **keys)
    assert found.startswith(says), found


def test_harmless_keys_are_not_used_ones() -> None:
    """A key is used, must have one value, or changes nothing: never two of them."""
    for record in RECORDS.values():
        fields = {field.alias or name for name, field in record.model_fields.items()}
        assert not fields & record.HARMLESS
        assert not HARMLESS & record.HARMLESS
        assert fields & HARMLESS == ({"is_decoder", "id2label", "num_labels"} if record is BertKeys else set())


def test_each_harmless_key_may_hold_anything(tmp_path: Path) -> None:
    for family, record in RECORDS.items():
        harmless = (HARMLESS | record.HARMLESS) - record.model_fields.keys()
        made = make(family, layers=1, vocab=40)
        made.config |= dict.fromkeys(harmless, ["anything", {"at": None}])
        assert load_network(write(tmp_path, made)).graph.layers == 1


def test_each_key_with_one_value_has_a_rule_above() -> None:
    told = {(family, name) for family, keys, _ in RULES for name in keys}
    for family, record in RECORDS.items():
        for name, field in record.model_fields.items():
            shared = name in Keys.model_fields
            if field.description:
                key = field.alias or name
                assert key in {name for at, name in told if shared or at in (family, "llama")}, (family, key)


def test_activations_are_those_that_can_be_named() -> None:
    assert set(ACTIVATIONS) == set(ActivationName.__args__)  # type: ignore[attr-defined]


def test_each_family_is_told_by_its_types() -> None:
    names = [name for family in FAMILIES for name in family.model_types]
    assert len(names) == len(set(names))
    for family in FAMILIES:
        assert family.architectures


@pytest.mark.parametrize(("content", "says"), [
    (b"{'hidden_size': 8}", "config.json:1: is not JSON"), (b"\xff\xfe{}", "is not UTF-8 text"),
    (b"[" * 100_000, "its nesting too deep"), (b"[]", "must hold a JSON object, not []"),
    (b'{"vocab_size": ' + b"9" * 5000 + b"}", "a number is too long"), (b" " * (2 << 20), "must hold at most 1,048,5"),
    (b'{"vocab_size": 8, "vocab_size": 16}', "names 'vocab_size' twice"),
    (b'{"rms_norm_eps": NaN}', "numbers must be finite, not NaN"), (b"", "is not JSON"),
])
def test_no_config(content: bytes, says: str, tmp_path: Path) -> None:
    write(tmp_path, make("llama", layers=1, vocab=40))
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CompileError) as caught:
        load_network(tmp_path)
    assert says in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_long_values_are_abbreviated(tmp_path: Path) -> None:
    text = refused(tmp_path, "llama", **{"k" * 500: "v" * 5000})
    assert len(text) < 250
    text = refused(tmp_path, "llama", **{"\x1b[31m\n": json.loads("[" * 50 + "]" * 50)})
    assert text.startswith("\\x1b[31m\\n = ")
