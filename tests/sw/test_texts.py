"""Texts of a file: separators wherever they stand, however lines end, for every command that takes several."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmule.sw.commands.shared.texts import BETWEEN, read_parts
from gemmule.sw.errors import InputError
from gemmule.sw.limits import PROMPTS_BYTES

from .test_cli import run

LINES = st.lists(st.sampled_from(["a", "", "---", " ---", "----", "--- ", "b---"]), max_size=9)


@pytest.mark.parametrize(("content", "texts"), [
    ("a\n---\nb\n", ["a", "b\n"]), ("a\r\n---\r\nb\r\n", ["a", "b\r\n"]), ("---\na\n---\n", ["a"]),
    ("---\r\na\r\n---", ["a"]), ("a\n---\n---\n\n---\nb", ["a", "b"]), ("a\n---\r\nb\r\n---\nc", ["a", "b", "c"]),
    ("a\n\n---\nb", ["a\n", "b"]), ("a\n ---\nb---\n---c", ["a\n ---\nb---\n---c"]), ("\ufeff---\na", ["a"]),
    ("a", ["a"]), ("a\n---", ["a"]),
])
def test_separators(content: str, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "texts"
    file.write_bytes(content.encode())
    assert read_parts(file, "--turns") == texts
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    assert read_parts(Path("-"), "--turns") == texts


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_parts_are_the_lines_between(lines: list[str], end: str, ended: bool) -> None:
    text = end.join(lines) + (end if ended and lines else "")
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == "---":
            parts.append([])
        else:
            parts[-1].append(line)
    expected = [end.join(part) for part in parts]
    if ended and lines and lines[-1] != "---":
        expected[-1] += end
    assert [part for part in BETWEEN.split(text) if part.strip()] == [part for part in expected if part.strip()]


@pytest.mark.parametrize(("content", "message"), [
    (b"---\r\n---\n \n", "must hold at least one text between lines that are '---', not none"),
    (b"a" * (PROMPTS_BYTES + 1), "must hold at most 16777216 bytes"), (b"\xff", "must be UTF-8 text"),
    (b"", "must hold at least one character"),
])
def test_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "texts").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_parts(tmp_path / "texts", "--prompt-file")


def test_all_commands_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, out = tmp_path / "texts", tmp_path / "a.json"
    file.write_bytes(b"---\r\nimport os\r\n---\r\nx = 1\r\n---\r\n")
    common = ("--model", "small", "--max-new-tokens", "2", "--json", str(out))
    assert run(monkeypatch, "generate", *common, "--method", "ar", "--turns", str(file)) == 0
    turns = [part["prompt"] for part in json.loads(out.read_text())["turns"]]
    assert run(monkeypatch, "generate", *common, "--method", "ar", "--prompt-file", str(file), "--batch", "2") == 0
    texts = [part["prompt"] for part in json.loads(out.read_text())["texts"]]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    assert run(monkeypatch, "bench", *common, "--method", "ar", "--prompt-file", "-") == 0
    prompts = json.loads(out.read_text())["prompts"]
    assert turns == texts == ["import os", "x = 1"]
    assert [prompt["name"] for prompt in prompts] == ["-:1", "-:2"]
