"""Chats: templates as Hugging Face's libraries render them, turns that keep the model's own tokens, one-line errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmule.compiler.files.chat import Chat
from gemmule.compiler.files.model_file import Made, save_model
from gemmule.config import load_config
from gemmule.sw.commands.shared.decode import turns
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.script import Chatted, Given
from gemmule.sw.decoding.stops import Stops
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.text.chat import Template
from gemmule.sw.text.tokens import detokenizer
from tests.compiler.integer_networks import Sizes, random_network

from .test_cli import run
from .test_conversation import WholeModel
from .test_decoding import VOCABULARY, Shape
from .tokenizers_of_each_kind import byte_level, sentence_piece, special_of

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
PLAIN = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}<|answer|>{{ m.content }}<|end|>\n"
         "{% elif m.role == 'user' %}<|user|>{{ m.content }}{% else %}{{ m.content }}\n{% endif %}{% endfor %}"
         "{% if add_generation_prompt %}<|answer|>{% endif %}")
TRIMMED = PLAIN.replace("{{ m.content }}<|end|>", "{{ m.content | trim }}<|end|>")
assert TRIMMED != PLAIN
WITHOUT_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + PLAIN


def render(template: str, *contents: str, system: str | None = None) -> str:
    """User and assistant by turns."""
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]
    return Template(Chat(template=template, tokens=TOKENS), "m").render(messages)


@pytest.mark.parametrize(("template", "text"), [
    (PLAIN, "<s>brief\n<|user|> a\n<|answer|>b<|end|>\n<|user|><c><|answer|>"),
    ("{% for m in messages %}\n    {% if true %}\n  {{ m.content }}!\n    {% endif %}\n{% endfor %}",
     "  brief!\n   a\n!\n  b!\n  <c>!\n"),
    ("{{ messages[3] | tojson }}", '{"role": "user", "content": "<c>"}'),
    ("{{ messages[0] | tojson(indent=1) }}", '{\n "role": "system",\n "content": "brief"\n}'),
    ("{{ strftime_now('%Y') | length }}", "4"),
    ("{% for m in messages %}{% generation %}{{ m.content | trim }}{% endgeneration %}{% endfor %}", "briefab<c>"),
    ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
    ("{{ tools is none and documents is none }} {{ unheard_of }}{{ eos_token }}", "True </s>"),
])
def test_what_templates_use(template: str, text: str) -> None:
    assert render(template, " a\n", "b", "<c>", system="brief") == text


@pytest.fixture
def usual_recursion() -> Iterator[None]:
    """Python's own limit: libraries raise it for the whole process, and then deep templates can be read."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize(("template", "message"), [
    ("{% for m in messages %}", "line 1 of the chat template of m must be Jinja: Unexpected end of template"),
    ("{{ messages | unheard }}", "line 1 of the chat template of m must be Jinja: No filter named 'unheard'"),
    ("{{ raise_exception('roles must\nalternate') }}", "refuses the conversation (roles must\\nalternate)"),
    ("{{ messages[3].content.x }}", "refuses the conversation ("),
    ("{{ 1 / 0 }}", "refuses the conversation (ZeroDivisionError: "),
    ("{{ ''.__class__.__mro__ }}", "refuses the conversation (access to attribute '__class__'"),
    ("{{ messages.append(1) }}", "refuses the conversation ("),
    ("{{ range(10000000) | list }}", "refuses the conversation ("),
    ("{% if false %}x{% endif %}", "refuses the conversation (it gives no text)"),
    ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "the chat template of m cannot be read: RecursionError"),
])
def test_templates_that_fail_are_one_line(template: str, message: str, usual_recursion: None) -> None:
    with pytest.raises(InputError) as found:
        render(template, "hello")
    assert message in str(found.value)
    assert "\n" not in str(found.value)


def ids_of(tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def chatted(template: str, tokenizer, *texts: str, system: str | None = None) -> Chatted:
    return Chatted(Template(Chat(template=template, tokens=TOKENS), "m").render, lambda text: ids_of(tokenizer, text),
                   detokenizer(tokenizer), texts, system)


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
def test_the_first_turn_has_special_tokens_and_one_begin(make) -> None:
    tokenizer = make()
    special = special_of(tokenizer)
    found = chatted(PLAIN, tokenizer, "what is a cache?", system="answer").turn(0, None)
    assert found.tokens.count(special["<s>"]) == 1
    assert [found.tokens.count(special[name]) for name in ("<|user|>", "<|answer|>", "<|end|>")] == [1, 1, 0]
    assert found.tokens[-1] == special["<|answer|>"]


def spelled(tokenizer, text: str) -> list[int]:
    """Letter by letter, as no tokenizer cuts a text."""
    found = [tokenizer.token_to_id(letter) or tokenizer.token_to_id({" ": "Ġ"}.get(letter, letter))
             or tokenizer.token_to_id({" ": "▁"}.get(letter, letter)) for letter in text]
    assert None not in found
    return found


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
@pytest.mark.parametrize(("answer", "end", "back"), [
    ("the boat", "", 0), ("the boat", "<|end|>", 0), ("the boat", "</s>", 1), (" the boat ", "<|end|>", 0),
])
def test_answers_keep_the_models_own_tokens(make, answer: str, end: str, back: int) -> None:
    """Whatever tokens they are; one that ends a text goes where the template has another."""
    tokenizer = make()
    script = chatted(PLAIN, tokenizer, "what is a cache?", "the man?")
    first, said = script.turn(0, None).tokens, spelled(tokenizer, answer)
    assert said != ids_of(tokenizer, answer)
    said += [tokenizer.token_to_id(end)] if end else []
    found = script.turn(1, Generation(said, Ledger(load_config("tiny")), before=first))
    assert found.back == back
    assert script.rendered == f"<s><|user|>what is a cache?<|answer|>{answer}<|end|>\n<|user|>the man?<|answer|>"
    text = detokenizer(tokenizer).behind([], [*first, *said[:len(said) - back], *found.tokens]).full
    # SentencePiece-like tokenizers put a space behind each special token, here as in Hugging Face's libraries.
    assert text.replace(" ", "") == script.rendered.replace(" ", "")
    assert found.tokens[-1] == tokenizer.token_to_id("<|answer|>")


def test_a_conversation_that_is_rendered_otherwise_is_given_again() -> None:
    tokenizer = byte_level()
    script = chatted(TRIMMED, tokenizer, "what?", "the man?")
    first = script.turn(0, None).tokens
    found = script.turn(1, Generation(ids_of(tokenizer, " the boat "), Ledger(load_config("tiny")), before=first))
    again = "<s><|user|>what?<|answer|>the boat<|end|>\n<|user|>the man?<|answer|>"
    assert found == Given(ids_of(tokenizer, again), None)


def test_the_tokens_of_a_stop_string_are_no_part_of_an_answer() -> None:
    tokenizer = byte_level()
    script = chatted(PLAIN, tokenizer, "what?", "the man?")
    first = script.turn(0, None).tokens
    last = Generation(ids_of(tokenizer, "the boat came"), Ledger(load_config("tiny")), before=first, text_end=8,
                      finish_reason="stop", stop_string=" came")
    assert script.turn(1, last) == Given(
        ids_of(tokenizer, "<s><|user|>what?<|answer|>the boat<|end|>\n<|user|>the man?<|answer|>"), None)


class Fixed:
    """Gives turns as they are told."""

    def __init__(self, *given: Given) -> None:
        self.given = given

    def __len__(self) -> int:
        return len(self.given)

    def turn(self, number: int, last: Generation | None) -> Given:
        return self.given[number]


@pytest.mark.parametrize("name", ["ar", "draft"])
def test_what_both_texts_begin_with_stays_in_the_cache(name: str) -> None:
    """A turn that takes tokens back, or says all again, goes on as a new text with those tokens does."""
    target = WholeModel()
    drafter = Autoregressive() if name == "ar" else DraftModel(WholeModel(salt=5, shape=Shape(), name="draft"), 3)
    talk = Conversation(target, drafter, Ledger(load_config("tiny")), Stops())  # type: ignore[arg-type]
    again = [3, 1, 4, 7, 9]
    runs = turns(talk, Fixed(Given([3, 1, 4]), Given([2, 2], 1), Given(again, None)), 6, lambda new: None,
                 lambda: False)
    text: list[int] = [3, 1, 4]
    for run_, behind in zip(runs, ([-1, 2, 2], [], [])):
        text = again if run_ is runs[2] else text
        for _ in range(6):
            text.append(WholeModel().next_token(text))
        assert run_.tokens == text[-6:]
        text = text[:-1] + [2, 2] if behind else text
    assert [run.given for run in runs] == [3, 2, 5]
    assert [run.cached for run in runs] == [0, 8, 3]
    assert max(again) < VOCABULARY


MADE = Made(version="1", bits=8, group=0, method="nearest", smooth=False, seed=1, calibration_sha256="0")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, tokenizer = tmp_path_factory.mktemp("chat"), byte_level()
    network = random_network(Sizes(family="llama", vocab=tokenizer.get_vocab_size(), positions=192), 3)
    ends = (special_of(tokenizer)["<|end|>"],)
    for name, template in (("plain", PLAIN), ("without-system", WITHOUT_SYSTEM), ("broken", "{% if %}")):
        save_model(folder / name, network, MADE, tokenizer.to_str(), ends, chat=Chat(template=template, tokens=TOKENS))
    save_model(folder / "none", network, MADE, tokenizer.to_str(), ends)
    (folder / "turns").write_bytes(b"---\r\nwhat is a cache?\r\n---\r\nand a boat?\r\n---\r\n")
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("options", [("--method", "ar"), ("--method", "pld"), ("--draft-model", "none")])
def test_turns_of_a_chat(files: dict[str, Path], options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
                         tmp_path: Path) -> None:
    given = [str(files.get(option, option)) for option in options]
    out = tmp_path / "chat.json"
    assert run(monkeypatch, "generate", "--model", str(files["plain"]), "--chat", "--system", "be brief", "--turns",
               str(files["turns"]), "--max-new-tokens", "6", *given, "--json", str(out), "--html",
               str(tmp_path / "chat.html")) == 0
    record = json.loads(out.read_text())
    assert (record["chat"], record["system"]) == (True, "be brief")
    assert [turn["prompt"] for turn in record["turns"]] == ["what is a cache?", "and a boat?"]
    tokenizer = byte_level()
    first = ids_of(tokenizer, "<s>be brief\n<|user|>what is a cache?<|answer|>")
    assert record["turns"][0]["prompt_tokens"] == len(first)
    assert record["prompt_tokens"] == sum(turn["prompt_tokens"] for turn in record["turns"])
    assert record["same_tokens_as_ar"] in (True, None)
    assert "what is a cache?\n" in (tmp_path / "chat.html").read_text()


def test_a_chat_is_asked_by_the_template_alone(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The same tokens as the rendered text as a prompt; that of a model without a template gains its own ``<s>``."""
    found = []
    for name, options in (("plain", ("--chat", "--prompt", "what?")),
                          ("none", ("--prompt", "<|user|>what?<|answer|>"))):
        assert run(monkeypatch, "generate", "--model", str(files[name]), *options, "--max-new-tokens", "5", "--json",
                   str(tmp_path / "a.json")) == 0
        found.append(json.loads((tmp_path / "a.json").read_text()))
    assert found[0]["tokens"] == found[1]["tokens"]
    assert found[0]["prompt_tokens"] == found[1]["prompt_tokens"]


def test_a_batch_of_questions(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    common = ("generate", "--model", str(files["plain"]), "--chat", "--max-new-tokens", "4", "--json", str(out))
    assert run(monkeypatch, *common, "--prompt-file", str(files["turns"]), "--batch", "2") == 0
    texts = json.loads(out.read_text())["texts"]
    for text in texts:
        assert run(monkeypatch, *common, "--prompt", text["prompt"]) == 0
        assert json.loads(out.read_text())["tokens"] == text["tokens"]


@pytest.mark.parametrize(("options", "message"), [
    (("--model", "none", "--chat"), "--chat: model none has no chat template; leave out --chat"),
    (("--model", "small", "--chat"), "--chat: model small has no chat template"),
    (("--model", "plain", "--system", "x"), "--system 'x' needs --chat: give it, or leave out --system"),
    (("--model", "without-system", "--chat", "--system", "x"), "refuses the conversation (no system here)"),
    (("--model", "broken", "--chat"), "line 1 of the chat template of broken must be Jinja"),
    (("--model", "plain", "--chat", "--prompt", ""), "--prompt must hold at least one character"),
    (("--model", "plain", "--chat", "--system", "\udc80"), "--system must be UTF-8 text"),
    (("--model", "plain", "--chat", "--prompt", "the boat " * 99), "the prompt must hold at most 191 tokens"),
])
def test_refused_in_one_line(files: dict[str, Path], options: tuple[str, ...], message: str,
                             monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(files[value]) if name == "--model" and value in files else value
             for name, value in zip(("", *options), options)]
    assert run(monkeypatch, "generate", *given, "--max-new-tokens", "2") == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1
