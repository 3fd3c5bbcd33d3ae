"""Let SmolLM2 write what `--chooser-corpus writings` and `--retrieval-corpus writings` look up.

    python -m gemmule.sw.training.writings --seconds 3000 --out sw/models/smollm2/writings.safetensors

The model makes up what a user says, drawn at temperature 1 behind the head of a conversation, and answers it greedily.
Six of ten begin as the requests of people do (:data:`OPENINGS`), the others as it likes. Nothing is trained, no request
of ``sw/prompts`` is read. It runs in bfloat16 by torch, many texts at a time, so another machine writes other texts;
the file that is kept is one run's, by a forerunner of this program. Needs torch, transformers, accelerate and gguf (the
extra ``parity``).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from gemmule.io.files import write_atomically
from gemmule.sw.errors import InputError
from gemmule.sw.models.pair import open_pair
from gemmule.sw.models.published import published_file
from gemmule.sw.text.chat import Template

__all__ = ["Text", "Writer", "packed"]

OPENINGS = (
    "Write a Python function", "Write a", "What is", "What are", "How do I", "How can I", "Why", "Explain", "Translate",
    "Translate the following text into", "Summarize the following text", "Rewrite", "Solve", "Tell me", "Give me",
    "List", "Answer", "Here is", "A", "Write a JavaScript function", "Write a class", "Fix", "If", "The following")
OPENED = 0.6
"""Share of the texts that begin with one of them."""
ASKED, ANSWERED, POSITIONS = 90, 128, 272
"""Tokens of a request and of an answer at most, and of both with what the template puts around them."""
MARK = "XXXX"
"""Stands for a request where the chat template is taken apart."""


class Writer:
    """The published network in bfloat16, a row of each text at a time."""

    def __init__(self, batch: int) -> None:
        import torch
        import transformers

        self.torch, path = torch, published_file("smollm2")
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32)
        model = model.to(torch.bfloat16).eval()
        self.model, self.layers, self.batch = model, list(model.model.layers), batch
        keys, width = model.config.num_key_value_heads, model.config.head_dim
        self.heads, self.kv_heads, self.width = model.config.num_attention_heads, keys, width
        self.keys = torch.zeros(len(self.layers), batch, keys, POSITIONS, width, dtype=torch.bfloat16)
        self.values = torch.zeros_like(self.keys)

    def logits(self, tokens: list[int], positions: list[int]) -> Any:
        """Behind a token of each text at its position  # [batch, vocab]"""
        with self.torch.inference_mode():
            return self._passed(tokens, positions)

    def _passed(self, tokens: list[int], positions: list[int]) -> Any:
        torch = self.torch
        at, every = torch.tensor(positions), torch.arange(self.batch)
        hidden = self.model.model.embed_tokens(torch.tensor(tokens))  # [batch, columns]
        cosine, sine = self.model.model.rotary_emb(hidden[:, None], at[:, None])
        hides = torch.arange(max(positions) + 1)[None] > at[:, None]
        for number, layer in enumerate(self.layers):
            own = layer.self_attn
            normed = layer.input_layernorm(hidden)
            asked, keys, values = (linear(normed).view(self.batch, -1, self.width) for linear in (
                own.q_proj, own.k_proj, own.v_proj))  # [batch, heads, head_dim]
            asked, keys = (part * cosine + self._turned(part) * sine for part in (asked, keys))
            self.keys[number, every, :, at], self.values[number, every, :, at] = keys, values
            asked = asked.view(self.batch, self.kv_heads, -1, self.width)
            scores = asked @ self.keys[number, :, :, :max(positions) + 1].transpose(-1, -2) * self.width ** -0.5
            seen = torch.softmax(scores.float().masked_fill(hides[:, None, None], -torch.inf), -1).to(torch.bfloat16)
            mixed = (seen @ self.values[number, :, :, :max(positions) + 1]).reshape(self.batch, -1)
            hidden = hidden + own.o_proj(mixed)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return self.model.lm_head(self.model.model.norm(hidden))

    def _turned(self, part: Any) -> Any:
        first, second = part.chunk(2, -1)
        return self.torch.cat([-second, first], -1)


@dataclass
class Text:
    """A conversation of two turns that is being written."""

    given: list[int]
    """Tokens that come next, whatever the model says."""
    tail: list[int]
    """What stands between request and answer."""
    written: list[int] = field(default_factory=list)
    asked: int = 0
    answered: int = 0
    answers: bool = False

    def add(self, drawn: int, likeliest: int, end: int) -> bool:
        """The next token: as given, drawn in a request, the likeliest one in an answer; whether the text is over."""
        if self.given:
            self.written.append(self.given.pop(0))
            return False
        if self.answers:
            self.written.append(likeliest)
            self.answered += 1
            return likeliest == end or self.answered == ANSWERED or len(self.written) == POSITIONS
        self.asked += 1
        if drawn == end or self.asked > ASKED:
            self.answers, self.given = True, [*self.tail]
            self.written.append(self.given.pop(0))
        else:
            self.written.append(drawn)
        return False


def written(writer: Writer, seconds: float, seed: int) -> Iterator[list[int]]:
    """Texts without their heads, until the time is over."""
    torch, pair = writer.torch, open_pair("smollm2")
    assert pair.chat
    head, tail = (pair.plain(part) for part in Template(pair.chat, pair.name).render(
        [{"role": "user", "content": MARK}]).split(MARK))
    openings, choices = [pair.plain(text) for text in OPENINGS], np.random.default_rng(seed)
    (end,) = pair.plain("<|im_end|>")

    def begun() -> Text:
        opened = openings[choices.integers(len(openings))] if choices.random() < OPENED else []
        text = Text([*head, *opened], tail, asked=len(opened))
        text.written.append(text.given.pop(0))
        return text

    torch.manual_seed(seed)
    texts, until = [begun() for _ in range(writer.batch)], time.monotonic() + seconds
    while time.monotonic() < until:
        logits = writer.logits([text.written[-1] for text in texts], [len(text.written) - 1 for text in texts])
        likeliest = logits.argmax(-1).tolist()
        chances = torch.softmax(logits.float(), -1)
        drawn = (chances / torch.empty_like(chances).exponential_()).argmax(-1).tolist()
        for number, text in enumerate(texts):
            if text.add(drawn[number], likeliest[number], end):
                yield text.written[len(head):]
                texts[number] = begun()


def packed(texts: list[list[int]], separator: int) -> bytes:
    """The file: texts one behind the other, each once, ``separator`` behind each."""
    every = [token for text in dict.fromkeys(map(tuple, texts)) for token in (*text, separator)]
    return save({"tokens": np.array(every, dtype=np.uint16)}, {
        "licence": "Written by SmolLM2-135M-Instruct (Apache-2.0)", "texts": str(every.count(separator))})


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3000.0)
    parser.add_argument("--batch", type=int, default=192, help="texts at a time")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        writer = Writer(args.batch)
        texts = list(written(writer, args.seconds, args.seed))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    write_atomically(args.out, packed(texts, writer.model.config.vocab_size))
    print(f"{len(texts)} texts, {sum(map(len, texts)):,} tokens: {args.out}")


if __name__ == "__main__":
    main()
