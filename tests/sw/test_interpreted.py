"""Values by the interpreter and cycles by timing alone are those of the device."""

from fractions import Fraction

import pytest

from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY, Match, Rejection
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.step import Want

SAMPLING = Sampling(0.9, 40, Fraction(19, 20))
RULES = {"greedy": GREEDY, "match": Match(SAMPLING, Noise(4)), "rejection": Rejection(SAMPLING, Noise(4))}
PROMPT = "class Stack:\n    def push(self, item):\n        self.items = []\n"  # more than one launch of 16 rows


@pytest.fixture(scope="module")
def sessions() -> list[Session]:
    return [Session(load_config("base"), general=True, interpreted=interpreted) for interpreted in (False, True)]


@pytest.mark.parametrize(("method", "count"), [("ar", None), ("draft", 4), ("pld", 9)])
@pytest.mark.parametrize("rule", RULES)
def test_the_same_run(sessions: list[Session], method: str, count: int | None, rule: str) -> None:
    """Tokens, steps, and the whole ledger: cycles of both models, units, traffic."""
    chosen = "match" if method == "pld" and rule == "rejection" else rule
    ran, quick = (one.generate(method, encode(PROMPT), 12, count, rule=RULES[chosen]) for one in sessions)
    assert quick.tokens == ran.tokens
    assert quick.steps == ran.steps
    assert quick.ledger == ran.ledger
    assert quick.prefill == ran.prefill
    assert ran.ledger.cycles > ran.prefill.cycles > 0


def test_what_it_does_not_do(sessions: list[Session]) -> None:
    target = sessions[1].target.charging(Ledger(load_config("base")))
    with pytest.raises(ValueError, match="the interpreter gives tokens and logits of rows by token"):
        target.forward(Rows.chain([5, 6]), Want(top=3))
    target.forward(Rows.tree([5, 6, 7], [-1, 0, 0], 0))
    with pytest.raises(ValueError, match="keeps paths that are in place; run the device for trees"):
        target.commit(0, [0, 2])
    for options in ({"backend": "rtl"}, {"launch": "draft"}):
        with pytest.raises(InputError, match="--compute interpreter needs --backend model and --launch pass"):
            Session(load_config("base"), interpreted=True, **options)
