"""Windows of calibration and measurement: what a tokenizer puts in front, conversations, texts that are apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.files.chat import Chat
from gemmule.sw.errors import InputError
from gemmule.sw.models.bundled_models import MODELS
from gemmule.sw.models.import_texts import default_texts, texts_of
from gemmule.sw.models.sources import Source, read_source
from tests.compiler import families

TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}<assistant>"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("source")
    families.write(folder, families.make("llama", seed=1, head_dim=24, layers=1, vocab=1024))
    (folder / "tokenizer.json").write_text(next(MODELS.rglob("tokenizer.json")).read_text())
    return replace(read_source(folder), bos=(7, 9))


def test_windows_begin_as_prompts_do(source: Source) -> None:
    """Those of calibration and of measurement, of files and of the default text; nothing of the text is lost."""
    text = Path(__file__).read_text()
    for calibrate, evaluate in ((text, {}), (text, {"own": text}), (None, {})):
        texts = texts_of(source, 20, calibrate, evaluate)
        for windows in (texts.used, *texts.measured.values()):
            assert windows.shape[1] == 20
            assert (windows[:, :2] == [7, 9]).all()
    texts = texts_of(source, 20, text, {"own": text[:200]})
    assert source.tokenizer.decode(texts.measured["own"][0, 2:].tolist()) == source.tokenizer.decode(
        source.tokenizer.encode(text[:200], add_special_tokens=False).ids[:18])


def test_a_quarter_of_a_chat_models_windows_are_conversations(source: Source) -> None:
    chat = replace(source, chat=Chat(template=TEMPLATE, tokens={}))
    plain, texts = (texts_of(one, 24, None, {}) for one in (source, chat))
    framed = [i for i, (a, b) in enumerate(zip(plain.used, texts.used, strict=True)) if not np.array_equal(a, b)]
    assert framed == [0, 4, 8, 12]
    for window in (*texts.used[framed], *texts.measured["chat"]):
        words = source.tokenizer.decode(window.tolist())
        assert words.startswith("<user>")
        assert "\n<assistant>" in words
    assert list(plain.measured) == ["prose", "code"]
    assert list(texts.measured) == ["prose", "code", "chat"]


def test_default_texts_of_calibration_and_measurement_are_apart() -> None:
    used, measured = (default_texts(part) for part in ("calibration", "evaluation"))
    for kind in ("prose", "code"):
        lines = [{line for line in texts[kind].splitlines() if len(line) > 60} for texts in (used, measured)]
        assert len(lines[0] & lines[1]) < 0.02 * len(lines[1])
        assert len(used[kind]) > 50_000
    assert used == default_texts("calibration")


def test_windows_are_refused(source: Source) -> None:
    with pytest.raises(InputError, match="--window must be more than 3 tokens, not 3: prompts begin with 2"):
        texts_of(source, 3, "words", {})
    with pytest.raises(InputError, match="--evaluate must hold at least 18 tokens"):
        texts_of(source, 20, None, {"own": "words"})
    refusing = Chat(template="{{ raise_exception('no users') }}", tokens={})
    with pytest.raises(InputError, match="no users"):
        texts_of(replace(source, chat=refusing), 20, None, {})
