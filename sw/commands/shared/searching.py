"""Options of a search (``--beams``, ``--best-of``), what they exclude, and how it runs and is told."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.settings import Settings
from gemmule.sw.errors import InputError
from gemmule.sw.limits import BEST, PENALTY, RANKS, WIDTH, check_choice

if TYPE_CHECKING:
    from gemmule.config import Config
    from gemmule.sw.decoding.generation import Generation
    from gemmule.sw.decoding.search.run import Found, Search
    from gemmule.sw.decoding.stops import Stops
    from gemmule.sw.models.pair import Pair

__all__ = ["BeamsOption", "BestOfOption", "EarlyStopOption", "PenaltyOption", "RankOption", "Searching"]

BeamsOption = Annotated[int | None, typer.Option(
    "--beams", metavar="N", show_default=False,
    callback=lambda n: n if n is None else WIDTH.check("--beams", n),
    help=f"Beam search for the N likeliest texts, {WIDTH}; all are rows of the same passes and share the cache. With "
         "--method ar.")]
PenaltyOption = Annotated[float | None, typer.Option(
    "--length-penalty", metavar="P", show_default=False,
    callback=lambda p: p if p is None else PENALTY.check("--length-penalty", p),
    help=f"Complete beams compete by their log-probability over their length to the power of P, {PENALTY}; only with "
         "--beams. Default: 1.")]
EarlyStopOption = Annotated[bool, typer.Option(
    "--early-stop", help="End as soon as N beams are complete; only with --beams. Default: when no other beam could be "
                         "better than they are.")]
BestOfOption = Annotated[int | None, typer.Option(
    "--best-of", metavar="N", show_default=False,
    callback=lambda n: n if n is None else BEST.check("--best-of", n),
    help=f"The best of N sampled texts, {BEST}, which are rows of the same passes and share the prompt's cache; with "
         "--temperature and --method ar.")]
RankOption = Annotated[str | None, typer.Option(
    "--rank", metavar="|".join(RANKS), show_default=False, autocompletion=lambda: list(RANKS),
    callback=lambda name: name if name is None else check_choice("--rank", name, RANKS),
    help="What is best of --best-of: the largest mean log-probability (mean), or the text that most samples agree on "
         "(majority). Default: mean.")]


@dataclass(frozen=True, kw_only=True)
class Searching:
    """The options of a search; fields are options of that name."""

    beams: int | None
    length_penalty: float | None
    early_stop: bool
    best_of: int | None
    rank: str | None

    @property
    def wanted(self) -> bool:
        """Whether there is a search."""
        return self.beams is not None or self.best_of is not None

    @property
    def width(self) -> int:
        """Texts of a search."""
        return self.beams or self.best_of or 1

    @property
    def option(self) -> str:
        """As it was given."""
        return f"--beams {self.beams}" if self.beams is not None else f"--best-of {self.best_of}"

    def check(self, method: str | None, settings: Settings, others: Mapping[str, bool]) -> None:
        """Refuse what does not go together. ``others``: further options, by name, that are given.

        Raises:
            InputError: one of them is given, or one lacks what it needs.
        """
        for name, given, needed in (("--length-penalty", self.length_penalty is not None, "--beams"),
                                    ("--early-stop", self.early_stop, "--beams"), ("--rank", self.rank, "--best-of")):
            if given and (self.beams if needed == "--beams" else self.best_of) is None:
                raise InputError(f"{name} needs {needed} N: give it, or leave out {name}")
        if not self.wanted:
            return
        if self.beams is not None and self.best_of is not None:
            raise InputError(f"--beams {self.beams} and --best-of {self.best_of} exclude each other: drop one of the "
                             "two")
        if method not in (None, "ar"):
            raise InputError(f"{self.option} takes rows of a pass for its texts and drafts nothing, so it does not go "
                             f"with --method {method}: drop one of the two")
        if self.beams is not None and settings.temperature > 0:
            raise InputError(f"{self.option} chooses by log-probability, not with --temperature "
                             f"{settings.temperature:g}: drop one of the two, or use --best-of {self.beams}")
        if self.best_of is not None and settings.temperature == 0:
            raise InputError(f"{self.option} needs --temperature above 0: without it all texts are the same")
        for name, given in {
                f"--batch {settings.batch}": settings.batch > 1, "--kv-cache none": settings.kv_cache == "none",
                "--prune": settings.prune is not None, f"--launch {settings.launch}": settings.launch != "pass",
                f"--draft-lengths {settings.draft_lengths}": settings.draft_lengths != "constant",
                f"--context-overflow {settings.context_overflow}": settings.context_overflow != "stop",
                **others}.items():
            if given:
                raise InputError(f"{self.option} does not go with {name}: drop one of the two")

    def run(self, settings: Settings, device: Config, pair: Pair, prompt: list[int], max_new_tokens: int, stops: Stops,
            baseline: bool) -> tuple[Found, Generation | None, dict[str, Any]]:
        """The search, autoregressive decoding of the same prompt, and what JSON tells of both.

        Raises:
            InputError: the device takes fewer texts, or strings end beams.
        """
        from gemmule.io.progress import counting
        from gemmule.sw.decoding.search.session import SearchSession
        from gemmule.sw.models.branching import Branching
        from gemmule.sw.reports.search import search_json

        if self.beams is not None and stops.strings:
            raise InputError(f"{self.option} ends texts at tokens alone, not with --stop {stops.strings[0]!r}: drop "
                             "one of the two")
        branching = Branching(width=self.width, room=len(prompt) + self.width * max_new_tokens)
        interpreted = settings.interprets(pair)
        with SearchSession(device, pair, branching, settings.backend, interpreted=interpreted,
                           prefill=settings.prefill_rows) as session:
            begin = time.perf_counter()
            with counting(f"steps of {self.option}", max_new_tokens, lines=False) as tell:
                found = session.search(self._way(settings, pair, tell), prompt, max_new_tokens, stops)
            seconds, program = time.perf_counter() - begin, session.target.program
        reference = None
        if baseline:
            with settings.plain_session(device, pair) as other:
                reference = other.generate("ar", prompt, max_new_tokens, stop=stops, rule=settings.rule())
        return found, reference, search_json(found, reference, program, pair, self.width) | {
            "search": "beams" if self.beams is not None else "best-of", "width": self.width,
            "length_penalty": self._penalty if self.beams is not None else None, "early_stop": self.early_stop,
            "rank": self._rank if self.best_of is not None else None, "backend": settings.backend,
            "compute": "interpreter" if interpreted else "device", "seed": settings.seed,
            "temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p,
            "verify": settings.rule_name, "prefill_rows": settings.prefill_rows, "max_new_tokens": max_new_tokens,
            "simulation_seconds": round(seconds, 3)}

    @property
    def _penalty(self) -> float:
        return 1.0 if self.length_penalty is None else self.length_penalty

    @property
    def _rank(self) -> str:
        return self.rank or RANKS[0]

    def _way(self, settings: Settings, pair: Pair, tell: Any) -> Search:
        from gemmule.sw.decoding.search.run import BeamSearch, BestOf

        steps = 0

        def progress() -> None:
            nonlocal steps
            steps += 1
            tell(steps, "")

        if self.beams is not None:
            return BeamSearch(self.beams, Decimal(repr(self._penalty)), self.early_stop, progress)
        return BestOf(self.width, settings.rule(), self._rank, pair.decode, progress)
