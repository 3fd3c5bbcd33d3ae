"""The loss of a draft beside a teacher's kept answers, with its gradient worked out by hand.

The loss is the cross-entropy with the teacher's probabilities, what is not kept spread evenly over all tokens, and
``hard`` times that with its best token. Its gradient with respect to the logits is (1 + hard) softmax less the wanted
probabilities: a few passes over memory, where automatic differentiation takes a dozen. That is most of what training
a draft costs, whose head has more weights than its layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["answer_loss"]

PART = 1024
"""Tokens whose logits are in memory at a time: they stay in the cache."""


class _AnswerLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, head: Tensor, words: Tensor, shares: Tensor, hard: float,
                products: torch.dtype) -> Tensor:
        """x [tokens, hidden], head [vocab, hidden], words and shares [tokens, kept] -> mean loss in nats."""
        wanted = shares.clone()
        wanted[:, 0] += hard
        rest = (1 - shares.sum(-1, keepdim=True)).clamp(min=0) / len(head)  # [tokens, 1]
        low, flat = x.to(products), head.to(products)
        total, to_x, to_head = x.new_zeros(()), torch.empty_like(low), torch.zeros_like(head)
        for start in range(0, len(x), PART):
            at = slice(start, start + PART)
            logits = (low[at] @ flat.T).float()  # [part, vocab]
            logits -= logits.logsumexp(-1, keepdim=True)
            total -= (wanted[at] * logits.gather(-1, words[at])).sum() + (rest[at] * logits).sum()
            slope = logits.exp_().mul_(1 + hard).sub_(rest[at])
            slope.scatter_add_(-1, words[at], -wanted[at])
            slope = slope.to(products)
            to_x[at] = slope @ flat
            to_head += slope.T @ low[at]
        ctx.save_for_backward(to_x, to_head)
        return total / len(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        to_x, to_head = ctx.saved_tensors
        scale = grads[0] / len(to_x)
        return to_x.float() * scale, to_head * scale, None, None, None, None


def answer_loss(x: Tensor, head: Tensor, words: Tensor, logs: Tensor, hard: float, products: torch.dtype) -> Tensor:
    """Mean loss in nats of rows behind the final norm  # x [tokens, hidden], head [vocab, hidden].

    ``words`` and ``logs`` are a teacher's answers  # [tokens, kept]; ``products``: what matrices are multiplied in.
    """
    loss: Tensor = _AnswerLoss.apply(x, head, words, logs.float().exp(), hard, products)
    return loss
