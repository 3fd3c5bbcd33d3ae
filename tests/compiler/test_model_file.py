"""Model files: the same network back, equal bytes for equal networks, one line for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.chat import Chat
from gemmule.compiler.files.model_file import Made, load_model, model_bytes, save_model
from tests.compiler.integer_encoders import EncoderSizes, random_encoder
from tests.compiler.integer_networks import Sizes, random_network

MADE = Made(version="1", bits=8, group=0, method="nearest", smooth=True, seed=3, calibration_sha256="0")
CONTENT = model_bytes(random_network(Sizes(family="llama", heads=4), 1), MADE, '{"a": 1}')


@pytest.mark.parametrize("sizes", [
    Sizes(family="llama", heads=4), Sizes(family="gpt2"), Sizes(family="opt", bits=4, group=8, hidden=32)])
def test_round_trip(sizes: Sizes, tmp_path: Path) -> None:
    network, path = random_network(sizes, 1), tmp_path / "model.safetensors"
    save_model(path, network, MADE, "{}")
    found = load_model(path)
    assert (found.network.graph, found.made, found.tokenizer) == (network.graph, MADE, "{}")
    for name, value in network.weights.items():
        np.testing.assert_array_equal(found.network.weights[name], value)
        assert found.network.weights[name].dtype == value.dtype
    assert model_bytes(random_network(sizes, 1), MADE, "{}") == path.read_bytes()


def test_labels(tmp_path: Path) -> None:
    """As many as a classifier's columns; a file without them has the bytes that it had before there were any."""
    network, path = random_encoder(EncoderSizes(layers=1, labels=3), 1), tmp_path / "model.safetensors"
    save_model(path, network, MADE, None, labels=("a", "b", "c"))
    assert load_model(path).labels == ("a", "b", "c")
    assert b"labels" not in model_bytes(network, MADE, None)
    with pytest.raises(ValueError, match="labels must be as many as the output's columns, 3, not 2"):
        save_model(path, network, MADE, None, labels=("a", "b"))


def test_chat(tmp_path: Path) -> None:
    """A file without a template has the bytes that it had before there were any."""
    network, path = random_network(Sizes(family="llama", heads=4), 1), tmp_path / "model.safetensors"
    chat = Chat(template="{{ bos_token }}{{ messages }}", tokens={"bos_token": "<s>"})
    save_model(path, network, MADE, "{}", (1,), chat=chat)
    assert load_model(path).chat == chat
    assert b"chat" not in model_bytes(network, MADE, "{}", (1,))
    plain = tmp_path / "plain.safetensors"
    save_model(plain, network, MADE, "{}", (1,))
    assert load_model(plain).chat is None
    assert load_model(plain).sha256 != load_model(path).sha256
    path.write_bytes(path.read_bytes().replace(b"{{ messages }}", b"{{ massages }}"))
    with pytest.raises(CompileError, match="must have the SHA-256 that it tells, and is damaged"):
        load_model(path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_are_one_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    damaged = bytearray(CONTENT)
    at = data.draw(st.integers(0, len(damaged) - 1) | st.integers(0, 6000))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    path.write_bytes(damaged[:data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)))])
    with pytest.raises(CompileError) as error:
        load_model(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="nothing.safetensors"):
        load_model(tmp_path / "nothing.safetensors")
