"""Texts that the target writes: prompts that it invents, its answers to them, and to requests about texts and code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gemmule.sw.training.drafters.packed import Pack
from gemmule.sw.training.drafters.recipe import WritingRecipe
from gemmule.sw.training.drafters.target import Target, Written

__all__ = ["Pool", "Writer", "covered", "frequent"]

LEAST_INVENTED, LEAST_PASSAGE, MOST_PASSAGE = 4, 24, 160
"""Tokens of an invented prompt, and of a passage of an answer that is asked about."""


@dataclass
class Pool:
    """Texts of one length: tokens [texts, length] on the CPU, where answers begin and end, categories.

    ``rows`` are those of answers that the target kept as it wrote them (see ``Written``); they are not saved.
    """

    length: int
    tokens: list[Tensor] = field(default_factory=list)
    starts: list[Tensor] = field(default_factory=list)
    ends: list[Tensor] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)

    def add(self, written: Written, names: list[str]) -> None:
        """Put a batch of texts in, those whose answer has two tokens."""
        kept = (written.ends - written.starts >= 2).cpu()
        tokens = torch.zeros(len(kept), self.length, dtype=torch.int32)
        width = min(self.length, written.tokens.shape[1])
        tokens[:, :width] = written.tokens[:, :width].to("cpu", torch.int32)
        self.tokens.append(tokens[kept])
        self.starts.append(written.starts.cpu()[kept])
        self.ends.append(written.ends.cpu().clamp(max=self.length)[kept])
        self.names += [name for name, keep in zip(names, kept.tolist(), strict=True) if keep]
        if written.rows is not None:
            self.rows.append(written.rows[kept])

    def join(self) -> None:
        """Make one tensor of each list."""
        self.tokens, self.starts, self.ends = ([torch.cat(part)] for part in (self.tokens, self.starts, self.ends))

    @property
    def answered(self) -> int:
        """Tokens of answers."""
        return sum(int((ends - starts).sum()) for starts, ends in zip(self.starts, self.ends))

    def save(self, path: Path) -> None:
        """Write it as numpy arrays."""
        self.join()
        np.savez(path, tokens=self.tokens[0].numpy(), starts=self.starts[0].numpy(), ends=self.ends[0].numpy(),
                 names=np.array(self.names))

    @classmethod
    def load(cls, path: Path) -> Pool:
        """Read what :meth:`save` wrote."""
        with np.load(path) as arrays:
            tokens, starts, ends = ([torch.from_numpy(arrays[name])] for name in ("tokens", "starts", "ends"))
            return cls(tokens[0].shape[1], tokens, starts, ends, [str(name) for name in arrays["names"]])


class Writer:
    """Writes texts round by round; what it writes follows from the seed and from how far it came.

    What ``judging`` asks, texts that judged an earlier run, is not asked again. ``keep``: pools get the rows of
    answers.
    """

    def __init__(self, target: Target, pack: Pack, recipe: WritingRecipe, seed: int,
                 judging: Pool | None = None, keep: bool = False) -> None:
        self.target, self.pack, self.recipe, self.keep = target, pack, recipe, keep
        self.draws = torch.Generator(target.device).manual_seed(seed)
        self.choices = np.random.default_rng(seed)
        self.seen: set[bytes] = set()
        self.batches = 0
        self.stops = np.isin(np.arange(pack.shape.vocab), np.concatenate(pack.lists["stops"]))
        order = self.choices.permutation(len(pack.lists["asked"]))
        if judging:
            self.seen |= self._asked_in(judging)
            order = np.array([at for at in order if _key(pack.lists["asked"][at]) not in self.seen])
        self.asked, self.at = order[0 if judging else recipe.held_out:], 0
        self.kept_out = order[:0 if judging else recipe.held_out]

    def invent(self) -> list[Tensor]:
        """Prompts that the target draws behind the head of a conversation; none twice."""
        recipe, before = self.recipe, torch.from_numpy(self.pack.before).long()
        written = self.target.write([before] * recipe.invented, recipe.most_invented, 1.0, self.draws)
        found = []
        rows, ends, closed = written.tokens.cpu(), written.ends.tolist(), written.closed.tolist()
        for row, end, is_closed in zip(rows, ends, closed):
            text = row[len(before):end - 1]
            if is_closed and len(text) >= LEAST_INVENTED and (key := _key(text.numpy())) not in self.seen:
                self.seen.add(key)
                found.append(text)
        return found

    def conversation(self, text: Tensor) -> Tensor:
        """A user's text up to where the answer begins."""
        return torch.cat([torch.from_numpy(self.pack.before), text, torch.from_numpy(self.pack.turn)]).long()

    def _asked_in(self, pool: Pool) -> set[bytes]:
        """What users ask in the texts of a pool."""
        head, turn = len(self.pack.before), len(self.pack.turn)
        return {_key(text[head:start - turn].numpy()) for tokens, starts in zip(pool.tokens, pool.starts)
                for text, start in zip(tokens, starts.tolist())}

    def held_out(self) -> Pool:
        """Greedy answers to the requests, to packed prompts and to invented ones that nothing else is written to."""
        recipe, lists = self.recipe, self.pack.lists
        texts = [(name, torch.from_numpy(text))
                 for name, text in zip(self.pack.names["requests"], lists["requests"], strict=True)]
        texts += [(f"held out {self.pack.names['asked'][at]}", torch.from_numpy(lists["asked"][at]))
                  for at in self.kept_out]
        texts += [("held out invented", text) for text in self.invent()[:recipe.held_out]]
        pool = Pool(max(len(self.conversation(text)) for _, text in texts) + recipe.judged)
        pool.add(self.target.write([self.conversation(text) for _, text in texts], recipe.judged, 0, self.draws,
                                   keep=self.keep), [name for name, _ in texts])
        pool.join()
        return pool

    def round(self, chat: Pool, given: Pool, allowed: Callable[[float], bool]) -> Iterator[int]:
        """Write a round into two pools; yields the tokens of answers after each batch.

        Args:
            allowed: told the share of a round that the next batch is, whether there is time for it.
        """
        recipe = self.recipe
        fresh = self.invent()
        passages = list[Tensor]()
        for at in range(0, len(fresh), recipe.chat_rows):
            if not allowed(0.4):
                return
            texts = fresh[at:at + recipe.chat_rows]
            written = self._answer(texts, recipe.chat_length)
            chat.add(written, ["invented"] * len(texts))
            passages += self._passages(written)
            yield chat.answered + given.answered
        for _ in range(2):
            if not allowed(0.3):
                return
            half = recipe.given_rows // 2
            texts, names = self._asked(recipe.given_rows - half)
            more = [self._about(passage) for passage in self._some(passages, half)]
            given.add(self._answer(texts + more, recipe.given_length), names + ["passage"] * len(more))
            yield chat.answered + given.answered

    def _answer(self, texts: list[Tensor], length: int) -> Written:
        recipe = self.recipe
        self.batches += 1
        temperature = recipe.temperature if self.batches % recipe.drawn_every == 0 else 0
        most = length - recipe.answer - len(self.pack.before) - len(self.pack.turn)
        return self.target.write([self.conversation(text[:most]) for text in texts], recipe.answer, temperature,
                                 self.draws, recipe.least_open, keep=self.keep)

    def _asked(self, count: int) -> tuple[list[Tensor], list[str]]:
        """The next packed prompts."""
        found = [int(self.asked[(self.at + one) % len(self.asked)]) for one in range(count)]
        self.at += count
        return ([torch.from_numpy(self.pack.lists["asked"][at]) for at in found],
                [self.pack.names["asked"][at] for at in found])

    def _passages(self, written: Written) -> list[Tensor]:
        """Beginnings of answers up to the end of a sentence."""
        found = []
        for row, start, end in zip(written.tokens.cpu(), written.starts.tolist(), written.ends.tolist()):
            text = row[start:min(end - 1, start + MOST_PASSAGE)]
            stops = np.flatnonzero(self.stops[text.numpy()])
            if len(stops) and stops[-1] + 1 >= LEAST_PASSAGE:
                found.append(text[:int(stops[-1]) + 1])
        return found

    def _some(self, passages: list[Tensor], count: int) -> list[Tensor]:
        """Drawn passages, fewer where there are fewer."""
        return [passages[at] for at in self.choices.permutation(len(passages))[:count]]

    def _about(self, passage: Tensor) -> Tensor:
        """A request about a passage."""
        words = self.pack.lists["instructions"]
        return torch.cat([torch.from_numpy(words[self.choices.integers(len(words))]), passage.to(torch.int32)])


def _key(text: NDArray[Any]) -> bytes:
    """Equal for equal tokens."""
    return text.astype(np.int32).tobytes()


def _counts(pools: list[Pool], vocab: int) -> Tensor:
    """How often answers hold each token."""
    counts = torch.zeros(vocab, dtype=torch.int64)
    for pool in pools:
        columns = torch.arange(pool.length)
        for tokens, starts, ends in zip(pool.tokens, pool.starts, pool.ends):
            counts += torch.bincount(tokens[(columns >= starts[:, None]) & (columns < ends[:, None])].long(),
                                     minlength=vocab)
    return counts


def covered(pool: Pool, vocabulary: Tensor, vocab: int) -> float:
    """The share of the tokens of answers that are in a vocabulary."""
    counts = _counts([pool], vocab)
    return float(counts[vocabulary].sum() / counts.sum())


def frequent(pools: list[Pool], count: int, vocab: int, always: list[int]) -> Tensor:
    """The tokens that answers hold most often, in order of their numbers; ``always`` are among them."""
    counts = _counts(pools, vocab)
    counts[always] = counts.max() + 1
    return counts.argsort(descending=True, stable=True)[:count].sort().values
