"""SmolLM2 with a pruned cache at work: does it still find a sentence in a long text, and does it sum up likewise?

    python -m benchmarks.pruned_tasks needle --out docs/results/pruned_tasks.json
    python -m benchmarks.pruned_tasks summaries --out docs/results/pruned_tasks.json

``needle``: prompts of 900 tokens, prose that calibration does not see with one sentence about a number put in at some
depth, and the question for the number behind it. An answer is right if it has the number. The length was chosen before
any pruned answer was looked at: the longest one tried, and the model with its whole cache finds the numbers there.
``summaries``: of passages of 500 tokens, beside those of the same model with its whole cache; the words that two
summaries share as in ROUGE (F1 of words, of pairs and of the longest common subsequence). Answers are greedy, by the
integer interpreter with the device's choices. A prompt is passed once, with the whole cache, as the device does it, and
each schedule goes on behind it. *Pooled* schedules are not the device's: the importance of a row is the largest of its
neighbours', as in SnapKV. Finished answers are kept in --out and not made again.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.common import run_part, show
from benchmarks.pruning import KEEPS, OBSERVED, POOLED, SCHEDULES, Pooled
from benchmarks.smollm2.model import model_path, source
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.sw.decoding.asking import alone
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.device.forward import append_rows
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.kv.text import TextKV
from gemmule.sw.models.import_texts import default_texts
from gemmule.sw.step import Ask, Asking, Forward, Want
from gemmule.sw.text.chat import Template
from gemmule.sw.workloads.pruned import Untimed, pruned_cache

__all__ = ["ANSWER", "CHOSEN", "NAMES", "Asked", "Hidden", "Reader", "entered", "in_common", "needles", "overlap",
           "right", "summary"]

WINDOW = "window of 256"
CHOSEN: dict[str, Pruning | None] = {
    "whole cache": None, **{name: SCHEDULES[name] for name in (
        "half", "a quarter", "a fifth", "half, window", "half, pages", "a quarter, pages")},
    WINDOW: KEEPS[WINDOW]}
NAMES = (*CHOSEN, *POOLED)
DENSE = Pruning(keep=1.0, whole=1 << 16)
HAYSTACKS, DEPTHS, LENGTH, ANSWER = 3, (0.9, 0.7, 0.5, 0.3, 0.1), 900, 16
"""Texts, how far into each the sentence stands (deepest first: prompts share what is before), and most tokens of a
prompt and of an answer."""
PLACES = ("Lisbon", "Nairobi", "Oslo", "Quito", "Hanoi", "Dublin", "Lima", "Cairo", "Riga", "Perth", "Tunis", "Bern",
          "Delhi", "Sofia", "Osaka")
NEEDLE = "The secret number of {} is {}."
QUESTION = "What is the secret number of {}? Answer with the number only."
PASSAGES, PASSAGE, SUMMARY = 6, 500, 48
TASK = "Summarize the text above in one or two sentences."
LEAST = 150
"""Characters of a paragraph that is used."""
Record = dict[str, Any]


class Reader:
    """A network with its whole cache, and texts that go on behind its prompts with any schedule."""

    def __init__(self, network: Network, ends: Iterable[int]) -> None:
        """``ends``: tokens that end a text."""
        self.network, self.ends = network, set(ends)
        self.model = InterpretedModel(TARGET, network, Untimed(network.graph), None)  # type: ignore[arg-type]
        self.kv = pruned_cache(self.model, DENSE, OBSERVED)

    def answers(self, ids: list[int], schedules: Iterable[tuple[Pruning | None, type[InterpretedChooser]]],
                most: int) -> Iterator[list[int]]:
        """Greedy tokens behind a prompt by each schedule, up to the one that ends a text; None: with the whole cache.
        """
        for schedule, chooser in schedules:
            alone(self.kv.begin(ids))
            model = copy.copy(self.model)
            model.cache, model.owners = Cache(self.network.graph), {}
            if schedule and schedule.pages:
                model.interpreter = IntegerInterpreter(self.network, schedule.pages)
            model.cache.begin_with(self.model.cache, 0)
            kv = pruned_cache(model, schedule or DENSE, OBSERVED, chooser)
            entered(kv.begin(ids))
            yield self.go_on(kv, ids, most)

    def go_on(self, kv: TextKV, ids: Sequence[int], most: int) -> list[int]:
        """``ids``: all tokens so far, of which the last one is not cached."""
        found: list[int] = []
        while len(found) < most:
            text = [*ids, *found]
            alone(kv.begin(text))
            token = alone(kv.candidates(Rows.chain(text[-1:], len(kv.ids)), Want())).argmax[0]
            alone(kv.accept(text[-1:], range(1)))
            if token in self.ends:
                break
            found.append(token)
        return found


class Asked(Reader):
    """SmolLM2, and what is said to it."""

    def __init__(self) -> None:
        file = load_model(model_path("int8"))
        super().__init__(file.network, file.ends)
        self.prefix, self.tokenizer = len(file.made.prefix), source().tokenizer
        assert file.chat is not None
        self.template = Template(file.chat, "the model")

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def asked(self, message: str) -> list[int]:
        """Tokens of a conversation that a user begins, behind those that stand in every cache."""
        text = self.template.render([{"role": "user", "content": message}])
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids[self.prefix:]

    def named(self, ids: list[int], names: Sequence[str], most: int) -> Iterator[tuple[str, list[int]]]:
        """:meth:`answers` by names of schedules, with the names."""
        kinds = [(POOLED[name], Pooled) if name in POOLED else (CHOSEN[name], InterpretedChooser) for name in names]
        return zip(names, self.answers(ids, kinds, most))

    def text(self, ids: list[int]) -> str:
        """What tokens say."""
        said: str = self.tokenizer.decode(ids)
        return said.strip()


def entered(asking: Asking[int]) -> None:
    """A prompt whose rows stand in the cache already: no pass is run."""
    answer = None
    while True:
        try:
            asked = asking.send(answer)
        except StopIteration:
            return
        assert isinstance(asked, Ask)
        append_rows(asked.kv, asked.rows)
        answer = Forward([], ())


def _paragraphs() -> list[str]:
    parts = (" ".join(part.split()) for part in default_texts("evaluation")["prose"].split("\n\n"))
    return [part for part in parts if len(part) >= LEAST]


def _text(reader: Asked, number: int, of: int, tokens: int) -> list[str]:
    """Paragraphs of about so many tokens: the ``number``-th of ``of`` places of the prose."""
    every, found = _paragraphs(), []
    for part in every[number * len(every) // of:]:
        tokens -= reader.count(part)
        if tokens < 0:
            break
        found.append(part)
    return found


@dataclass(frozen=True)
class Hidden:
    """A prompt with a sentence in it."""

    key: Record
    """Which text, and how far into it the sentence stands."""
    ids: list[int]
    number: int
    """That the answer should have."""


def needles(reader: Asked) -> Iterator[Hidden]:
    """All prompts, those that share a text one behind the other."""
    numbers = np.random.default_rng(0).integers(1000, 10000, (HAYSTACKS, len(DEPTHS)))
    frame = reader.count(reader.template.render([{"role": "user", "content": QUESTION + NEEDLE}])) + 16
    for haystack in range(HAYSTACKS):
        parts = _text(reader, haystack, HAYSTACKS, LENGTH - frame)
        for i, depth in enumerate(DEPTHS):
            place, number = PLACES[haystack * len(DEPTHS) + i], int(numbers[haystack, i])
            at = round(depth * len(parts))
            whole = [*parts[:at], NEEDLE.format(place, number), *parts[at:], QUESTION.format(place)]
            yield Hidden({"haystack": haystack, "depth": depth}, reader.asked("\n\n".join(whole)), number)


def needle(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` prompt by prompt."""
    reader, rows = Asked(), record.setdefault("needle", [])
    for prompt in needles(reader):
        for name, found in reader.named(prompt.ids, _left(rows, prompt.key), ANSWER):
            said = reader.text(found)
            rows.append({**prompt.key, "schedule": name, "prompt_tokens": len(prompt.ids), "number": prompt.number,
                         "answer": said, "right": right(said, prompt.number)})
            save()
    show("answers that have the number", [
        {"schedule": name, "right": sum(row["right"] for row in rows if row["schedule"] == name),
         "of": sum(row["schedule"] == name for row in rows)} for name in NAMES])


def summaries(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` passage by passage."""
    reader = Asked()
    rows = record.setdefault("summaries", [])
    for passage in range(PASSAGES):
        ids = reader.asked("\n\n".join([*_text(reader, passage, PASSAGES, PASSAGE), TASK]))
        for name, found in reader.named(ids, _left(rows, {"passage": passage}), SUMMARY):
            rows.append({"passage": passage, "schedule": name, "prompt_tokens": len(ids), "tokens": found,
                         "text": reader.text(found)})
            save()
    show("summaries beside those with the whole cache", [
        {key: value for key, value in summary(rows, name).items() if key != "of"} for name in (*NAMES, None)])


def right(answer: str, number: int) -> bool:
    """Whether an answer has the number, and not as a part of another one."""
    return str(number) in re.findall(r"\d+", answer)


def _left(rows: list[Record], key: Record) -> list[str]:
    """Schedules of which a prompt has no answer yet."""
    done = {row["schedule"] for row in rows if all(row[name] == value for name, value in key.items())}
    return [name for name in NAMES if name not in done]


def summary(rows: Sequence[Record], schedule: str | None) -> Record:
    """Means over passages of a schedule's summaries beside the dense ones; None: those of the passage before.

    ``equal``: tokens before the first that differs, over those of the longer one.
    """
    dense = {row["passage"]: row for row in rows if row["schedule"] == "whole cache"}
    pairs = [(row, dense[row["passage"]]) for row in rows if row["schedule"] == schedule]
    if schedule is None:
        pairs = [(dense[(passage - 1) % len(dense)], row) for passage, row in dense.items()]
    longest = [max(len(one["tokens"]), len(other["tokens"]), 1) for one, other in pairs]
    equal = [in_common(one["tokens"], other["tokens"]) / most for (one, other), most in zip(pairs, longest)]
    shared = np.array([overlap(one["text"], other["text"]) for one, other in pairs])
    return {"schedule": schedule or "another passage", "of": len(pairs), "equal": float(np.mean(equal)),
            **dict(zip(("words", "pairs", "subsequence"), shared.mean(axis=0).tolist())),
            "tokens": float(np.mean([len(one["tokens"]) for one, _ in pairs]))}


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both begin."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def overlap(one: str, other: str) -> tuple[float, float, float]:
    """ROUGE-1, -2 and -L (Lin 2004) of two texts, as F1: words, pairs of words, and the longest subsequence."""
    first, second = ("".join(c if c.isalnum() else " " for c in text.lower()).split() for text in (one, other))

    def share(common: int, sizes: tuple[int, int]) -> float:
        return 2 * common / sum(sizes) if sum(sizes) else 0.0

    found = []
    for n in (1, 2):
        counts = [Counter(zip(*(words[i:] for i in range(n)))) for words in (first, second)]
        found.append(share((counts[0] & counts[1]).total(), (counts[0].total(), counts[1].total())))
    longest = [0] * (len(second) + 1)
    for word in first:
        row = [0]
        for i, (above, match) in enumerate(zip(longest[1:], second)):
            row.append(longest[i] + 1 if match == word else max(above, row[-1]))
        longest = row
    return found[0], found[1], share(longest[-1], (len(first), len(second)))


PARTS = {"needle": needle, "summaries": summaries}


def main() -> None:
    run_part(__doc__, PARTS, "pruned-tasks", {"model": "smollm2", "weights": "int8", "schedules": {
        name: asdict(schedule) if schedule else None for name, schedule in CHOSEN.items()}})


if __name__ == "__main__":
    main()
