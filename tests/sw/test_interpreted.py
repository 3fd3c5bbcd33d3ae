"""Values by the interpreter and cycles by timing alone are those of the device."""

from fractions import Fraction

import numpy as np
import pytest

from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.decoding.verify import GREEDY, Match, Rejection
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.step import Forward, Want
from tests.thinned import thinned

SEED = 20261127
SAMPLING = Sampling(0.9, 40, Fraction(19, 20))
RULES = {"greedy": GREEDY, "match": Match(SAMPLING, Noise(4)), "rejection": Rejection(SAMPLING, Noise(4))}
PROMPT = "class Stack:\n    def push(self, item):\n        self.items = []\n"  # more than one launch of 16 rows


@pytest.fixture(scope="module")
def sessions() -> list[Session]:
    return [Session(load_config("base"), general=True, interpreted=interpreted) for interpreted in (False, True)]


@pytest.mark.parametrize(("way", "rule"), thinned([("pld", 9), ("ar", None), ("draft", 4)], RULES))
def test_the_same_run(sessions: list[Session], way: tuple[str, int | None], rule: str) -> None:
    """Tokens, steps, and the whole ledger: cycles of both models, units, traffic."""
    method, count = way
    chosen = "match" if method == "pld" and rule == "rejection" else rule
    ran, quick = (one.generate(method, encode(PROMPT), 12, count, rule=RULES[chosen]) for one in sessions)
    assert quick.tokens == ran.tokens
    assert quick.steps == ran.steps
    assert quick.ledger == ran.ledger
    assert quick.prefill == ran.prefill
    assert ran.ledger.cycles > ran.prefill.cycles > 0


class Bushy(Drafter):
    """Random trees with the right token behind some nodes; asks for the largest logits of all that is verified."""

    def __init__(self, text: list[int], prompt: int) -> None:
        self.text, self.prompt, self.seen = text, prompt, list[list[tuple[list[int], list[int]]]]()

    def want(self) -> Want:
        return Want(top=5)

    def prompt_want(self) -> Want:
        return Want(top=3)

    def read(self, tokens: list[int], out: Forward) -> None:
        assert len(tokens) == len(out.argmax)
        self._keep(out)

    def _keep(self, out: Forward) -> None:
        assert out.top is not None
        assert out.top.tokens[:, 0].tolist() == out.argmax
        self.seen.append(list(zip(out.top.tokens.tolist(), out.top.logits.tolist())))

    def propose(self, ids: list[int], budget: int) -> Tree:
        random, right = np.random.default_rng((SEED, len(ids))), self.text[len(ids) - self.prompt:]
        tokens, parent, depth = [ids[-1]], [-1], [0]
        for node in range(1, min(budget, 9) + 1):
            behind = int(random.integers(max(0, node - 4), node))
            good = depth[behind] < len(right) and random.random() < 0.6
            tokens.append(right[depth[behind]] if good else int(random.integers(1000)))
            parent.append(behind)
            depth.append(depth[behind] + 1)
        return Tree(tokens, parent)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self._keep(out)


def test_trees_and_largest_logits(sessions: list[Session]) -> None:
    """Of prompts, too; and the cycles of moving accepted paths together."""
    print(f"seed {SEED}")
    prompt = encode(PROMPT)
    plain = sessions[1].generate("ar", prompt, 30).tokens
    drafters, runs = [Bushy(plain, len(prompt)) for _ in sessions], []
    for drafter, session in zip(drafters, sessions):
        runs.append(generate(session.target, drafter, prompt, 30, Ledger(session.config)))
    ran, quick = runs
    assert quick.tokens == ran.tokens == plain
    assert quick.steps == ran.steps
    assert quick.ledger == ran.ledger
    launches = ran.ledger.launches["target"] - ran.prefill.launches["target"]
    assert launches > len(ran.steps), "some paths were not in place"
    assert ran.ledger.passes["target"] - ran.prefill.passes["target"] == len(ran.steps), "moving them is no pass"
    assert drafters[0].seen == drafters[1].seen


def test_sums_of_exponents(sessions: list[Session]) -> None:
    """Those of the device, to the last bit, at temperatures that saturate few weights and many."""
    for temperature in (0.05, 1.0, 7.0):
        found = []
        for session in sessions:
            target = session.target.charging(ledger := Ledger(session.config))
            out = target.forward(Rows.chain([5, 6, 7]), Want(last=2, temperature=temperature), target.kv())
            assert out.exponents is not None
            found.append((out.argmax, out.exponents.maximum.tolist(), out.exponents.total.tolist(), out.exponents.mult,
                          out.exponents.shift, ledger))
        assert found[0] == found[1]


def test_what_it_does_not_do(sessions: list[Session]) -> None:
    target = sessions[1].target.charging(Ledger(load_config("base")))
    with pytest.raises(ValueError, match="the interpreter gives tokens and logits of rows by token, not hidden rows"):
        target.forward(Rows.chain([5, 6]), Want(hidden=(1,)))
    with pytest.raises(ValueError, match="the largest logits of a row are at most 16, not 17: take fewer, or logits"):
        target.forward(Rows.chain([5, 6]), Want(top=17))
    for options in ({"backend": "rtl"}, {"launch": "draft"}):
        with pytest.raises(InputError, match="--compute interpreter needs --backend model and --launch pass"):
            Session(load_config("base"), interpreted=True, **options)
