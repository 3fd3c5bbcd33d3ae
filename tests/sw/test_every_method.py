"""What ends a text, at the place where autoregressive decoding ends it: every method, on the interpreter.

Texts end inside what was drafted and accepted, by a string or by their length; they go on behind a cut as if nothing
had been drafted, drawn tokens included; prompts leave few positions of the context; and contexts are crossed by drafts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from benchmarks.equality import OBSERVED, Uncharged
from gemmule.compiler.quantize.narrow import narrowed
from gemmule.sw.decoding.context import OVERFLOWS
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.lengths import Constant
from gemmule.sw.decoding.methods import DRAFT, METHODS, Request
from gemmule.sw.decoding.stops import NO_STOPS, Stops
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.text.detokenize import Detokenizer
from gemmule.sw.workloads.pruned import Untimed
from tests.thinned import thinned

from .test_methods import CONFIG, FREE, OPTIONS, PROMPTS, RULES, SIZES, datastore, network

PIECES = [chr(ord("a") + token % 26) * (1 + token // 26) for token in range(SIZES.vocab)]
"""Text of each token."""


def _words(ids: list[int]) -> str:
    return "".join(PIECES[token] for token in ids)


GAMMA = 4
ROWS = 8
DRAFTING = [method for method in FREE if method != "ar"]
METHOD_RULES = thinned(DRAFTING, RULES)


def _model(name: str, salt: int) -> Uncharged:
    made = network(salt)
    return Uncharged(name, made, Untimed(made.graph, ROWS), None)  # type: ignore[arg-type]


def _talk(method: str, rule: str, stops: Stops = NO_STOPS, overflow: str = "stop") -> Conversation:
    """Of a text by models of its own; the draft model is the target itself, so that its drafts are right."""
    target, way = _model(TARGET, 0), METHODS[method]
    own, kv, chooser, int4 = target.charging(None, DRAFT), target.kv(), None, None
    options = way.values(OPTIONS.get(method, {}))
    if way.schedule:
        chooser = InterpretedChooser(own, way.schedule(options, own.room), OBSERVED)
    if way.needs_int4:
        narrow = narrowed(network())
        int4 = Uncharged(DRAFT, narrow, Untimed(narrow.graph, 1), None, whole=target).in_cache_of(target)  # type: ignore[arg-type]
    request = Request(draft=_model(DRAFT, 0), target=own, cache=kv, lengths=Constant(GAMMA if way.drafts else 0),
                      ends=frozenset(), rule=RULES[rule], host=CONFIG.host, options=options, datastore=datastore,
                      int4=int4, skipping=lambda: (1,), chooser=chooser)
    return Conversation(target, way.make(request), Ledger(CONFIG), stops, RULES[rule], overflow=OVERFLOWS[overflow],
                        kv=kv)


def _same(found: Generation, expected: Generation) -> None:
    assert (found.tokens, found.finish_reason, found.stop_string, found.text_end) == (
        expected.tokens, expected.finish_reason, expected.stop_string, expected.text_end)


@cache
def _plain(rule: str, prompt: tuple[int, ...], new: int, stop: int | None = None, overflow: str = "stop") -> Generation:
    """By autoregressive decoding, once for all methods; ``stop``: the one token that ends it."""
    stops = NO_STOPS if stop is None else Stops(frozenset({stop}))
    return _talk("ar", rule, stops, overflow).turn(list(prompt), new)


@cache
def _stopped(rule: str, string: str) -> tuple[Generation, Generation]:
    """By autoregressive decoding: a text up to a string, and the next turn behind it."""
    talk = _talk("ar", rule, _at(string))
    first, talk.stops = talk.turn(PROMPTS[2], 30), NO_STOPS
    return first, talk.turn([8, 5], 9)


def _at(string: str) -> Stops:
    return Stops(strings=[string], words=Detokenizer(_words))


@pytest.mark.parametrize(("method", "rule"), METHOD_RULES)
def test_strings_inside_accepted_drafts(method: str, rule: str) -> None:
    """A piece of the text is the stop string, wherever it begins; what comes behind is the same as without drafts."""
    whole = _words(_plain(rule, tuple(PROMPTS[2]), 30).tokens)
    inside = 0
    for at in range(3, 24, 5):
        expected, behind = _stopped(rule, whole[at:at + 3])
        talk = _talk(method, rule, _at(whole[at:at + 3]))
        found, talk.stops = talk.turn(PROMPTS[2], 30), NO_STOPS
        _same(found, expected)
        assert found.finish_reason == "stop"
        inside += sum(accepted + 1 for _, accepted in found.steps) > len(found.tokens)
        _same(talk.turn([8, 5], 9), behind)
    if method == "draft":
        assert inside, "a draft goes on behind a string"


@pytest.mark.parametrize(("method", "rule"), METHOD_RULES)
def test_the_length_comes_before_a_stop(method: str, rule: str) -> None:
    """A text of so many tokens ends there, though its next token would have stopped it."""
    text = _plain(rule, tuple(PROMPTS[0]), 12).tokens
    for new in (1, 2, GAMMA, GAMMA + 1, 9):
        stop = None if text[new] in text[:new] else text[new]
        stops = NO_STOPS if stop is None else Stops(frozenset({stop}))
        found = _talk(method, rule, stops).turn(PROMPTS[0], new)
        _same(found, _plain(rule, tuple(PROMPTS[0]), new, stop))
        assert (len(found.tokens), found.finish_reason) == (new, "length")


@pytest.mark.parametrize(("method", "rule"), METHOD_RULES)
def test_prompts_near_the_end_of_the_context(method: str, rule: str) -> None:
    """Fewer positions are left than a step drafts, down to one."""
    prompt = (PROMPTS[2] * SIZES.positions)[:SIZES.positions]
    for left in range(1, GAMMA + 3):
        found = _talk(method, rule).turn(prompt[:-left], 30)
        _same(found, _plain(rule, tuple(prompt[:-left]), 30))
        assert (len(found.tokens), found.finish_reason) == (left, "context")


@pytest.mark.parametrize(("method", "overflow"), thinned(DRAFTING, [name for name in OVERFLOWS if name != "stop"]))
def test_drafts_cross_the_context(method: str, overflow: str) -> None:
    """The text is cut and goes on, twice: no draft reaches over the edge, and draws are those of their positions."""
    for rule in RULES:
        new = 3 * SIZES.positions // 2
        found = _talk(method, rule, overflow=overflow).turn(PROMPTS[2], new)
        _same(found, _plain(rule, tuple(PROMPTS[2]), new, overflow=overflow))
        assert found.dropped > 0


def test_a_cut_that_draws_anew_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a draw counted attempts and not positions, the text behind a cut would be another one."""
    rule, drawn = RULES["match"], [0]
    stops = Stops(frozenset({_talk("ar", "match").turn(PROMPTS[2], 30).tokens[7]}))

    class Counted(type(rule.noise)):  # type: ignore[misc]
        def darts(self, tokens: int, position: int) -> object:
            drawn[0] += 1
            return super().darts(tokens, drawn[0])

    def text(method: str) -> list[int]:
        drawn[0] = 0
        talk = _talk(method, "match", stops)
        talk.turn(PROMPTS[2], 30)
        talk.stops = NO_STOPS
        return talk.turn([8, 5], 9).tokens

    assert text("draft") == text("ar")
    monkeypatch.setitem(RULES, "match", replace(rule, noise=Counted(rule.noise.seed)))
    assert text("draft") != text("ar")
