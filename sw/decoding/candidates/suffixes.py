"""Which tokens followed which in texts: a tree of all runs of up to so many tokens, with how often each stood there.

Walking down from the root by the last tokens of a text finds where they stood before; what follows is below. Kept as a
plain tree, not a compressed one: a text of n tokens has at most ``depth`` times n nodes. Light: no numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["Node", "Suffixes", "Writer"]


class Node:
    """A run of tokens: how often it stood there, and the runs that are a token longer."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[int, Node] = {}

    def likely(self) -> list[tuple[int, float]]:
        """Tokens that followed, each with its share of all places of the run; the most frequent first, of equal ones
        the one that was seen first.
        """
        return [(token, child.count / self.count)
                for token, child in sorted(self.children.items(), key=lambda item: -item[1].count)]


class Suffixes:
    """Runs of up to ``depth`` tokens of any number of texts."""

    def __init__(self, depth: int) -> None:
        self.depth, self.root = depth, Node()

    def writer(self) -> Writer:
        """Takes in a text of its own."""
        return Writer(self)

    def match(self, tokens: Sequence[int]) -> Node | None:
        """The node of a run; None: it stood nowhere."""
        node = self.root
        for token in tokens:
            if token not in node.children:
                return None
            node = node.children[token]
        return node

    def forget(self, text: Sequence[int]) -> None:
        """Take back a text that was written whole."""
        for first in range(len(text)):
            self.root.count -= 1
            node = self.root
            for token in text[first:first + self.depth]:
                child = node.children[token]
                child.count -= 1
                if not child.count:
                    del node.children[token]
                    break  # nobody else came this way
                node = child


class Writer:
    """Appends to one text."""

    def __init__(self, suffixes: Suffixes) -> None:
        self.suffixes = suffixes
        self.open: list[Node] = []
        """Runs that end with the text's last token, the longest first; the next token makes each longer."""

    def add(self, tokens: Iterable[int]) -> None:
        """Tokens behind those so far."""
        for token in tokens:
            self.suffixes.root.count += 1
            longer = []
            for node in (*self.open, self.suffixes.root):
                child = node.children.get(token)
                if child is None:
                    child = node.children[token] = Node()
                child.count += 1
                longer.append(child)
            self.open = longer[-(self.suffixes.depth - 1):] if self.suffixes.depth > 1 else []
