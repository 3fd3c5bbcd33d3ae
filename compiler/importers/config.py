"""What ``config.json`` may say: keys that are used, keys that must have one value, keys that change nothing.

Those that change nothing are told in a note. Every other key is refused by name: it may change what the network
computes. Keys that begin with ``_`` are notes of whoever wrote the file; a family may use one all the same.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Function
from gemmule.compiler.layout import MOST_DEPTH
from gemmule.io.fields import first_problem
from gemmule.io.reading import ReadError, brief, named, read_json, shown
from gemmule.isa import INDEX_BITS

K = TypeVar("K", bound="Keys")

__all__ = [
    "ACTIVATIONS", "HARMLESS", "MOST_COLUMNS", "ActivationName", "Depth", "Eps", "HeadCount", "Keys", "Layers",
    "Positions", "Vocab", "check_heads", "parse_keys", "read_config",
]

MOST_CONFIG = 1 << 20
"""Bytes of a config.json."""
MOST_COLUMNS = 8192
"""Columns of a head."""
MOST_TOLD = 40
"""Names of keys in a line."""
MOST_VOCAB = 1 << max(INDEX_BITS)
"""Token ids have at most so many bits on the device."""

Depth = Annotated[int, Field(ge=1, lt=MOST_DEPTH)]
"""Columns that a product sums over: int32 sums must not overflow."""
Layers = Annotated[int, Field(ge=1, le=1024)]
HeadCount = Annotated[int, Field(ge=1, le=1024)]
Positions = Annotated[int, Field(ge=1, le=1 << 16)]
Vocab = Annotated[int, Field(ge=1, le=MOST_VOCAB, description=f"token ids have {max(INDEX_BITS)} bits on the device")]
Eps = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]

ActivationName = Literal[
    "gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate", "silu",
    "swish", "relu", "relu2", "tanh"]
"""Functions by their Hugging Face names."""
ACTIVATIONS: dict[ActivationName, Function] = {
    "gelu": Function.GELU, "gelu_python": Function.GELU, "gelu_new": Function.GELU_TANH,
    "gelu_pytorch_tanh": Function.GELU_TANH, "gelu_python_tanh": Function.GELU_TANH, "gelu_fast": Function.GELU_TANH,
    "gelu_accurate": Function.GELU_TANH, "silu": Function.SILU, "swish": Function.SILU, "relu": Function.RELU,
    "relu2": Function.RELU2, "tanh": Function.TANH,
}
"""What they are: several names stand for one function, which their authors compute in different ways."""

HARMLESS = frozenset({
    # what made the file
    "name_or_path", "transformers_version", "unsloth_fixed", "unsloth_version",
    "transformers.js_config", "is_llama_config",
    # how weights are kept or computed with elsewhere; here always float32
    "torch_dtype", "dtype", "attn_implementation", "use_cache",
    "torchscript", "use_bfloat16", "chunk_size_feed_forward", "gradient_checkpointing", "pretraining_tp",
    # tokens and generation
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "cls_token_id", "mask_token_id",
    "decoder_start_token_id", "prefix", "tokenizer_class", "task_specific_params", "max_length", "min_length",
    "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens", "output_scores", "return_dict_in_generate",
    # what a call gives back
    "output_attentions", "output_hidden_states", "return_dict", "use_return_dict", "tie_last_hidden_states",
    # training; is_decoder matters to families that can be encoders too
    "is_decoder", "initializer_range", "attention_dropout", "classifier_dropout", "tie_encoder_decoder",
    # classification heads, which of decoders are not imported
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task",
})
"""Keys of any family that change nothing in what a network computes from tokens to logits."""


_ALONE = "an encoder that a decoder attends to is not supported"


class Keys(BaseModel):
    """Keys that a family uses, and those that must have one value; a description says why."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    HARMLESS: ClassVar[frozenset[str]] = frozenset()
    """Further keys of the family that change nothing. A field that is a harmless key of other families is used."""
    _ignored: tuple[str, ...] = PrivateAttr(default=())

    is_encoder_decoder: Literal[False] = Field(default=False, description=_ALONE)
    add_cross_attention: Literal[False] = Field(default=False, description=_ALONE)
    cross_attention_hidden_size: None = Field(default=None, description=_ALONE)
    pruned_heads: Annotated[dict[str, list[int]], Field(
        max_length=0, description="heads that differ in number by layer are not supported")] = {}
    quantization_config: None = Field(
        default=None, description="quantised checkpoints are not supported; give the float weights")
    auto_map: None = Field(default=None, description="code that comes with a checkpoint is not run")

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the file is left out, a line each."""
        if not self._ignored:
            return ()
        names = ", ".join(brief(name) for name in self._ignored[:MOST_TOLD])
        more = len(self._ignored) - MOST_TOLD
        return (f"keys that change nothing here: {names}" + (f" and {more} more" if more > 0 else ""),)


def read_config(path: Path) -> dict[str, Any]:
    """The keys of a config.json.

    Raises:
        CompileError: it is missing, or not a JSON object.
    """
    try:
        return read_json(path, MOST_CONFIG)
    except ReadError as error:
        raise CompileError(f"{named(path, error.line)}: {error}") from None


_WITH_REASON = ("less_than_equal", "less_than", "literal_error", "none_required", "too_long")
"""Kinds of error to which a key's description belongs: what it asks for is well formed and not supported."""


def _reason(record: type[BaseModel], where: tuple[int | str, ...]) -> str:
    """The description of the field at ``where``."""
    found = ""
    for part in where:
        field = next((field for name, field in record.model_fields.items() if part in (name, field.alias)), None)
        if field is None:
            break
        found = field.description or found
        inner = [kind for kind in (field.annotation, *getattr(field.annotation, "__args__", ()))
                 if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not inner:
            break
        record = inner[0]
    return found


def _message(error: ValidationError, record: type[Keys]) -> str:
    first = error.errors(include_url=False)[0]
    where, value = first["loc"], "null" if first["input"] is None else shown(first["input"])
    name = brief(".".join(str(part) for part in where))
    match first["type"]:
        case "extra_forbidden":
            known = {field.alias or key for key, field in record.model_fields.items()}
            near = get_close_matches(str(where[-1])[:64], sorted(known), 1, 0.8)
            hint = f"; did you mean {near[0]}?" if near else "; remove it if it does not"
            return f"{name} = {value} is not known here and may change what the network computes{hint}"
        case "none_required":
            text = f"{name} must be null or absent, not {value}"
        case "literal_error":
            text = f"{name} must be {first['ctx']['expected'].replace('True', 'true').replace('False', 'false')}, " \
                   f"not {value}"
        case "too_long":
            text = f"{name} must be empty, not {value}"
        case _:
            text = first_problem(error, record)[1]
    reason = _reason(record, where) if first["type"] in _WITH_REASON else ""
    return f"{text}: {reason}" if reason else text


def parse_keys(record: type[K], config: dict[str, Any]) -> K:
    """The keys of a family, checked.

    Raises:
        CompileError: a key is missing, unknown, of the wrong type or out of range, or asks for what is not supported.
    """
    used = {field.alias or name for name, field in record.model_fields.items()}
    harmless = (HARMLESS | record.HARMLESS) - used
    ignored = tuple(key for key in config if key in harmless or key.startswith("_") and key not in used)
    try:
        found = record.model_validate({key: value for key, value in config.items() if key not in ignored})
    except ValidationError as error:
        raise CompileError(_message(error, record)) from None
    found._ignored = ignored
    return found


def check_heads(key: str, width: int, heads_key: str, heads: int) -> None:
    """Whether a width divides into heads of at most :data:`MOST_COLUMNS`.

    Raises:
        ValueError: it does not; for a validator of :class:`Keys`.
    """
    if width % heads:
        raise ValueError(f"{key} must be a multiple of {heads_key} = {heads:,}, not {width:,}")
    if width // heads > MOST_COLUMNS:
        raise ValueError(f"{key} must be at most {MOST_COLUMNS:,} times {heads_key} = {heads:,}, not {width:,}")
