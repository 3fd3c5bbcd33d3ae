"""What a classifier says of a text: the tokens that it sees, and the share of each label."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.files.model_file import ModelFile
from gemmule.compiler.ir import Network
from gemmule.sw.errors import InputError
from gemmule.sw.text.tokens import parse_tokenizer

__all__ = ["first_window", "shares"]


def first_window(file: ModelFile, source: str, text: str, length: int, option: str) -> list[int]:
    """The beginning of a text, at most ``length`` tokens, within the tokenizer's special tokens.

    Raises:
        InputError: the model tells no labels or has no tokenizer, or there is no room or no text.
    """
    if not file.labels:
        raise InputError(f"{option} needs a classifier that names its labels, which {source} does not: leave {option} "
                         "out, or import one with id2label in its config.json")
    if file.tokenizer is None:
        raise InputError(f"{source} has no tokenizer: import it again from a directory with tokenizer.json")
    tokenizer = parse_tokenizer(file.tokenizer, source, file.network.graph.vocab)
    special = tokenizer.num_special_tokens_to_add(is_pair=False)
    if length <= special:
        raise InputError(f"--seq must be more than the {special} special tokens of a sequence, not {length}")
    tokenizer.enable_truncation(length)
    return list(tokenizer.encode(text).ids)


def shares(network: Network, output: np.ndarray, labels: tuple[str, ...]) -> dict[str, float]:
    """Softmax of a sequence's scores, the first row of the output, best first."""
    node = network.graph.by_name[network.graph.output]
    scores = output[0] * np.asarray(node.type.scale, dtype=np.float64)
    powers = np.exp(scores - scores.max())
    found = dict(zip(labels, (powers / powers.sum()).tolist(), strict=True))
    return dict(sorted(found.items(), key=lambda item: -item[1]))
