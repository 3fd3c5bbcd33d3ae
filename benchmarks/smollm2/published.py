"""The same file by torch and transformers: in float, and with what llama.cpp's Q8_0 does to weights and activations.

llama.cpp multiplies blocks of 32: int8 weights with a step (float16) times activations that are rounded to int8 by 32,
row by row, when they are read. That is imitated: every linear's weights, the embeddings among them, by the package
``gguf``, and what each linear reads. Everything else, keys and values too, stays in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmule.sw.models.published import published_file

__all__ = ["BLOCK", "Published"]

BLOCK = 32
NEEDED = ("torch", "transformers", "accelerate", "gguf")


class Published:
    """SmolLM2 in torch."""

    def __init__(self, weights: str = "") -> None:
        """``weights``: a GGUF type that linears are rounded to, such as Q8_0, their inputs to int8 by 32; none: float.

        Raises:
            SystemExit: a package is missing.
        """
        for name in NEEDED:
            try:
                __import__(name)
            except ImportError:
                raise SystemExit(f"this part compares with transformers and needs {name}: "
                                 "pip install 'gemmule[parity]'") from None
        import torch
        import transformers

        path = published_file("smollm2")
        self.torch = torch
        self.model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32).eval()
        if weights:
            self._round(weights)

    def _round(self, weights: str) -> None:
        import gguf

        torch = self.torch
        kind, done = gguf.GGMLQuantizationType[weights], set()

        def rounded(parameter: Any) -> None:
            if parameter.data_ptr() in done:  # the head is the table of embeddings
                return
            packed = gguf.quants.quantize(parameter.detach().numpy(), kind)
            parameter.data.copy_(torch.from_numpy(gguf.quants.dequantize(packed, kind)))
            done.add(parameter.data_ptr())

        def reads(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            x = inputs[0]
            blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
            step = blocks.abs().amax(-1, keepdim=True) / 127
            codes = torch.round(blocks / torch.where(step > 0, step, torch.ones_like(step)))
            return ((codes * step.half().float()).reshape(x.shape),)

        for module in self.model.modules():
            if isinstance(module, torch.nn.Linear):
                rounded(module.weight)
                module.register_forward_pre_hook(reads)
            elif isinstance(module, torch.nn.Embedding):
                rounded(module.weight)

    def greedy(self, prompts: Sequence[Sequence[int]], count: int, ends: frozenset[int]) -> list[list[int]]:
        """Up to ``count`` tokens behind each prompt; one that ends a text is its last. Prompts are padded in front."""
        torch, most = self.torch, max(map(len, prompts))
        ids = torch.tensor([[0] * (most - len(prompt)) + list(prompt) for prompt in prompts])
        seen = torch.tensor([[0] * (most - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.no_grad():
            found = self.model.generate(input_ids=ids, attention_mask=seen, max_new_tokens=count, do_sample=False,
                                        eos_token_id=sorted(ends), pad_token_id=min(ends), repetition_penalty=1.0)
        texts = found[:, most:].tolist()
        return [text[:next((at + 1 for at, token in enumerate(text) if token in ends), len(text))] for text in texts]

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Of one text  # float32 [tokens, vocab]."""
        with self.torch.no_grad():
            return np.asarray(self.model(input_ids=self.torch.tensor([list(tokens)])).logits[0].numpy())
