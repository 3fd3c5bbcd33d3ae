"""Where attention heads should look, as a loss beside that of what a network foretells.

A text that repeats itself, and a copy that is asked for, is foretold by an induction head (Olsson et al. 2022): one
layer brings each token those before it, a later one looks for where the last tokens stood and attends to what came
behind. In a draft of two narrow layers this does not form in the steps that a draft gets, and in a target of a few
million weights it takes the wrong one of several places; told where to look it is learnt within hundreds of steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from gemmule.sw.training.networks.model import LanguageModel, Layer, rotate

__all__ = ["before", "guidance_loss", "head_scores", "look_losses"]


def head_scores(model: LanguageModel, number: int, state: Tensor, heads: list[int] | None = None) -> Tensor:
    """Scores of some heads of a layer, of all by default, future keys at -1e30  # [rows, heads, queries, keys].

    ``state`` is the residual stream before the layer  # [rows, tokens, hidden].
    """
    layer, length = model.model.layers[number], state.shape[1]
    assert isinstance(layer, Layer)
    attention = layer.self_attn
    cos, sin = model._angles(0, length)
    x = layer.input_layernorm(state)
    q, k = (rotate(functional.linear(x, weight.unflatten(0, (-1, attention.head_dim))[heads].flatten(0, 1) if heads
                                     else weight).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2), cos, sin)
            for weight in (attention.q_proj.weight, attention.k_proj.weight))
    scores = (q @ k.transpose(-1, -2)).float() * (1 / math.sqrt(attention.head_dim))
    future = torch.ones(length, length, dtype=torch.bool, device=state.device).triu(1)
    return scores.masked_fill(future, -1e30)


def before(like: Tensor, distance: int) -> Tensor:
    """The place ``distance`` tokens before each one, -1 where there is none  # [rows, tokens], as ``like``."""
    return (torch.arange(like.shape[1], device=like.device) - distance).clamp(min=-1).expand_as(like)


def look_losses(scores: Tensor, places: Tensor) -> Tensor:
    """Mean of -log of what each head gives to the places that are no -1  # [.., heads, ..], [rows, queries] -> [heads].
    """
    chosen = scores.gather(-1, places.clamp(min=0)[:, None, :, None].expand(-1, scores.shape[1], -1, 1))[..., 0]
    told = (places >= 0)[:, None]
    return ((scores.logsumexp(-1) - chosen) * told).sum((0, 2)) / told.sum().clamp(min=1)


def guidance_loss(model: LanguageModel, states: list[Tensor], places: Tensor) -> Tensor:
    """How far a draft's heads are from where they are told to look, nats in the mean of the first and the last layer.

    Heads of the first layer are told to attend to the tokens one, two .. places before, those of the last one to
    ``places``, the token behind the longest match.

    Args:
        model: of two layers or more.
        states: its residual stream at every depth (:meth:`LanguageModel.hidden`).
        places: of :func:`followers`  # int64 [rows, tokens].
    """
    last = len(model.model.layers) - 1
    scores = head_scores(model, 0, states[0])
    near = [look_losses(scores[:, head:head + 1], before(places, head + 1)) for head in range(scores.shape[1])]
    return (torch.cat(near).mean() + look_losses(head_scores(model, last, states[last]), places).mean()) / 2
