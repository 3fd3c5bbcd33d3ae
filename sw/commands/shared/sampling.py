"""Options that say how tokens are chosen, and the rule that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gemmule.sw.commands.shared.common import choice
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.errors import InputError
from gemmule.sw.limits import LAUNCHES, PREFILL, TEMPERATURE, TOP_K, VERIFY, check_choice, either

if TYPE_CHECKING:
    from gemmule.sw.decoding.verify import Rule

__all__ = ["LaunchOption", "PrefillOption", "TemperatureOption", "TopKOption", "TopPOption", "VerifyOption",
           "check_launch", "make_rule", "rule_name"]

TemperatureOption = Annotated[float, typer.Option(
    "--temperature", metavar="T", callback=lambda value: _check_temperature(value),
    help=f"0: choose the most likely token; {TEMPERATURE[0]:g} to {TEMPERATURE[1]:g}: sample, with logits divided by "
         "T.")]
TopKOption = Annotated[int | None, typer.Option(
    "--top-k", metavar="K", show_default=False,
    callback=lambda value: value if value is None else TOP_K.check("--top-k", value),
    help="Sample from the K most likely tokens; only with --temperature. Default: all.")]
TopPOption = Annotated[float | None, typer.Option(
    "--top-p", metavar="P", show_default=False, callback=lambda value: _check_top_p(value),
    help="Then sample from the fewest tokens that have this share of the probability, above 0 to 1; only with "
         "--temperature. Default: 1.")]
VerifyOption = Annotated[str | None, typer.Option(
    "--verify", metavar="|".join(VERIFY), show_default=False, autocompletion=lambda: list(VERIFY),
    callback=lambda value: value if value is None else check_choice("--verify", value, VERIFY),
    help="How sampled tokens are verified: match (the same text as ar with the same seed) or rejection (the same "
         "distribution; accepts more of a model's drafts). Default: rejection with --method "
         f"{either([name for name, one in METHODS.items() if one.verify == 'rejection'])}, else match.")]


LaunchOption = Annotated[str, choice(
    "--launch", LAUNCHES, "With a draft model, what one launch contains: a pass; all drafts of a step, with greedy "
    "tokens passed on inside the device (draft); or the whole step, including the target's pass (step). The last two "
    "only with --temperature 0.")]


AdaptiveOption = Annotated[bool, typer.Option(
    "--adaptive", help="Verify, at each step, as many candidates as pay by the cycles of this device and by what was "
                       "accepted so far, and draft nothing where that does not pay. The text is the same.")]


PrefillOption = Annotated[int | None, typer.Option(
    "--prefill-rows", metavar="N", show_default=False,
    callback=lambda n: n if n is None else PREFILL.check("--prefill-rows", n),
    help=f"Rows per launch, in a separate program, for prompts longer than a decoding pass, {PREFILL}; 0: no separate "
         "program. The text is the same. Default: the number with the fewest cycles; none with --batch.")]


def check_launch(launch: str, drawn: bool, lengths: str = "constant", kv_cache: str = "full",
                 batch: int = 1) -> None:
    """Refuse launches of several passes where the host chooses tokens, no cache is kept, or texts share passes.

    Raises:
        InputError: tokens are drawn, the draft's confidence decides, each pass goes over the whole text, or several do.
    """
    if launch == "pass":
        return
    if batch > 1:
        raise InputError(f"--launch {launch} takes one text a launch, not --batch {batch}: drop one of the two")
    if kv_cache == "none":
        raise InputError(f"--launch {launch} does not go with --kv-cache none, whose every pass is one over the whole "
                         "text: drop one of the two")
    if drawn or lengths == "confidence":
        other = "--temperature above 0" if drawn else "--draft-lengths confidence"
        raise InputError(f"--launch {launch} does not go with {other}, where the host looks at every token: drop one "
                         "of the two")


def _check_temperature(value: float) -> float:
    if value != 0 and not TEMPERATURE[0] <= value <= TEMPERATURE[1]:
        raise InputError(f"--temperature must be 0 or from {TEMPERATURE[0]:g} to {TEMPERATURE[1]:g}, not {value:g}")
    return value


def _check_top_p(value: float | None) -> float | None:
    if value is not None and not 0 < value <= 1:
        raise InputError(f"--top-p must be above 0 and at most 1, not {value:g}")
    return value


def rule_name(method: str, temperature: float, verify: str | None) -> str:
    """``greedy``, ``match`` or ``rejection``.

    Raises:
        InputError: ``--verify`` without a temperature.
    """
    if temperature == 0:
        if verify is not None:
            raise InputError(f"--verify {verify} needs --temperature above 0: drop one of the two")
        return "greedy"
    return verify or (METHODS[method].verify if method in METHODS else "match")


def make_rule(name: str, temperature: float, top_k: int | None, top_p: float | None, seed: int) -> Rule:
    """The rule of that name.

    Raises:
        InputError: options of drawing without a temperature.
    """
    from fractions import Fraction

    from gemmule.sw.decoding.noise import Noise
    from gemmule.sw.decoding.sampling import Sampling
    from gemmule.sw.decoding.verify import GREEDY, Match, Rejection

    if name == "greedy":
        for option, value in (("--top-k", top_k), ("--top-p", top_p)):
            if value is not None:
                raise InputError(f"{option} {value:g} needs --temperature above 0: drop one of the two")
        return GREEDY
    sampling = Sampling(temperature, top_k or 0, Fraction(repr(top_p)) if top_p is not None else Fraction(1))
    return (Match if name == "match" else Rejection)(sampling, Noise(seed))
