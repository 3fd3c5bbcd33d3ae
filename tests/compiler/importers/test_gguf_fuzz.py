"""GGUF files damaged at random: a network whose every tensor can be had, or one CompileError in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmule.compiler import CompileError
from gemmule.compiler.importers import load_network

from ..families import make
from ..gguf_files import write_gguf
from .test_fuzz import VALUES, outcome

FEW = settings(max_examples=150, deadline=None, derandomize=True,
               suppress_health_check=[HealthCheck.function_scoped_fixture])
KEYS = ["block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
        "attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count",
        "rope.freq_base", "attention.layer_norm_rms_epsilon", "vocab_size", "attention.sliding_window",
        "rope.scaling.type", "expert_count"]
PLAIN = st.one_of(
    VALUES.filter(lambda value: isinstance(value, bool | float | str)), st.integers(0, 200),
    st.sampled_from([1 << 16, (1 << 31) - 1, (1 << 32) - 1]), st.lists(st.integers(0, 9), min_size=1, max_size=3))


@FEW
@given(family=st.sampled_from(["llama", "llama-tied", "gpt2", "phi"]), data=st.data())
def test_metadata(family: str, data: st.DataObject, tmp_path: Path) -> None:
    made = make(family, layers=1, vocab=8)
    architecture = {"phi": "phi2", "gpt2": "gpt2"}.get(family, "llama")
    drawn: dict[str, Any] = data.draw(st.dictionaries(
        st.sampled_from([f"{architecture}.{key}" for key in KEYS] + ["general.type", "split.count", "x"]),
        st.one_of(st.none(), PLAIN), min_size=1, max_size=3))
    fitting = {key: value for key, value in drawn.items()
               if not isinstance(value, float) or abs(value) < 3e38}  # the writer packs 32 bits
    outcome(write_gguf(tmp_path / "model.gguf", made, metadata=fitting))


@FEW
@given(data=st.data())
def test_bytes(data: st.DataObject, tmp_path: Path) -> None:
    """Bytes of the head, in twos and eights where counts and offsets may stand, and cuts."""
    path = tmp_path / "model.gguf"
    content = bytearray(write_gguf(path, make("llama", layers=1, vocab=8)).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, 1700))
        value = data.draw(st.one_of(st.binary(min_size=1, max_size=8),
                                    st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\0" * 7 + b"\x80", b"\xff" * 4])))
        content[at:at + len(value)] = value
    path.write_bytes(content[:data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))])
    outcome(path)


def test_every_cut_of_the_head(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    content = write_gguf(path, make("llama", layers=1, vocab=8)).read_bytes()
    for size in range(0, 1800, 7):
        path.write_bytes(content[:size])
        assert not outcome(path)
    path.write_bytes(content[:-33])
    with pytest.raises(CompileError, match="it is cut off or damaged"):
        load_network(path)
