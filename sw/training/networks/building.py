"""The encoder's weights, from a student's: what each part of the BERT is for.

Columns of a row: the token's vector, the vector of the token before, the position.

- Embedding: the token's vector, padded so that all rows have the same mean and length, and LayerNorm changes nothing.
- Layer 1: two heads look at the token before and bring its vector. The MLP is the student's and adds what the pair of
  tokens says for each class into the columns of the classes.
- Layer 2: all tokens are looked at alike, so that the first row gets the mean of the evidence. Its MLP does nothing.
- Pooler and classifier read the columns of the classes off the first row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gemmule.sw.training.data.folds import CLASSES
from gemmule.sw.training.data.tokenizer import VOCAB_SIZE
from gemmule.sw.training.networks.bert import Bert
from gemmule.sw.training.networks.student import Student
from gemmule.sw.training.recipe import EncoderRecipe

__all__ = ["build"]

BEND = 1.31
"""Frequencies of the positions' waves are powers of this: none of 127 distances looks like another."""
SHARP = 16.0
"""Score of the token before, in nats; others have a third of it at most."""
STEEP = 0.25
"""What the pooler's tanh reads where the evidence is as large as usual."""
SCALE = 5.0
"""What the classifier multiplies tanh by: pairs of a window are not independent, and shares must not be too sure."""


def padded(vectors: Tensor) -> Tensor:
    """Two more columns, with which all rows have a mean of 0 and the same length  # [rows, columns + 2]."""
    total, square = vectors.sum(1), (vectors ** 2).sum(1)
    length = (square + total ** 2 / 2).max()
    # rounding may take the longest row below 0
    half = torch.sqrt(((length - square) / 2 - total ** 2 / 4 + 1e-9).clamp(min=0))
    return torch.cat((vectors, (half - total / 2)[:, None], (-half - total / 2)[:, None]), 1)


def waves(count: int, columns: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position at several frequencies  # [count, columns]; and what takes one to the next."""
    half = columns // 2
    speeds = torch.pi * ((torch.arange(half) + 0.5) / half) ** BEND
    angles = torch.arange(count)[:, None] * speeds
    turn = torch.zeros(columns, columns)
    for at, speed in enumerate(speeds):
        cos, sin = torch.cos(speed), torch.sin(speed)
        turn[2 * at:2 * at + 2, 2 * at:2 * at + 2] = torch.stack((torch.stack((cos, -sin)), torch.stack((sin, cos))))
    return torch.stack((torch.cos(angles), torch.sin(angles)), -1).flatten(1), turn


def deviation(rows: Tensor) -> float:
    """What LayerNorm divides the rows by."""
    return float(rows.var(1, correction=0).mean().sqrt())


@torch.no_grad()
def build(plan: EncoderRecipe, student: Student) -> Bert:
    """The network; its scores are the student's evidence over a window, normed, through a tanh."""
    classes, size = len(CLASSES), plan.hidden // plan.heads
    words = padded(student.vectors)
    now, before = slice(0, words.shape[1]), slice(words.shape[1], 2 * words.shape[1])
    code, turn = waves(plan.window, size)
    places = padded(code)
    place = slice(before.stop, before.stop + size)
    network = Bert(plan)
    for weight in network.parameters():
        weight.zero_()
    embeddings = network.embeddings
    embeddings.word_embeddings.weight[:, now] = words
    embeddings.position_embeddings.weight[:, before.stop:before.stop + places.shape[1]] = places
    rows = torch.zeros(VOCAB_SIZE, plan.hidden)
    rows[:, now], rows[:, before.stop:before.stop + places.shape[1]] = words, places[1]
    keep(embeddings.LayerNorm, deviation(rows))
    one, two = network.layers

    attention, output = one.self_attention, one.attended
    for head in range(2):
        part = slice(head * size, (head + 1) * size)
        attention.key.weight[part, place] = turn
        attention.query.weight[part, place] = torch.eye(size) * SHARP / (size / 4) * size ** 0.5
    attention.value.weight[:before.stop - before.start, now] = torch.eye(before.stop - before.start)
    output.dense.weight[before, :before.stop - before.start] = torch.eye(before.stop - before.start)
    output.dense.weight[:classes, :plan.vector] = student.before.weight
    rows[:, before] = words
    keep(output.LayerNorm, deviation(rows))
    one.up.weight[:, :plan.vector] = student.second.weight
    one.up.weight[:, before.start:before.start + plan.vector] = student.first.weight
    one.up.bias.copy_(student.second.bias)
    one.output.dense.weight[:classes] = student.down.weight
    keep(one.output.LayerNorm, deviation(rows))

    two.self_attention.value.weight[:classes, :classes] = torch.eye(classes)
    two.attended.dense.weight[:classes, :classes] = torch.eye(classes) * plan.window
    for norm in (two.attended.LayerNorm, two.output.LayerNorm):
        norm.weight.fill_(1.0)
    network.pooler.weight[:classes, :classes] = torch.eye(classes) * STEEP
    network.classifier.weight[:, :classes] = torch.eye(classes) * SCALE
    return network


def keep(norm: nn.LayerNorm, divisor: float) -> None:
    """Let a LayerNorm give back what it divides by."""
    norm.weight.fill_(divisor)
