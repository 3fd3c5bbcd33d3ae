"""Requests for the target about texts and code: functions and documentation of Python's standard library.

None is a request of ``sw/prompts/requests.json``; modules that judge other models here are left out.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator

import numpy as np

from gemmule.sw.prompts.functions import functions_of
from gemmule.sw.text.corpus import Corpus, Document

__all__ = ["ABOUT_PASSAGES", "requests_about"]

LEAST_DOC, MOST_DOC = 120, 700
MOST_CODE = 700
"""Characters of a passage and of a piece of code."""

ABOUT_CODE = (
    "Complete the following Python function.\n\n", "Explain what this Python code does.\n\n",
    "Write a docstring for this Python function.\n\n", "Add type hints to this Python function.\n\n",
    "Write a test for this Python function.\n\n", "Add comments to this Python code.\n\n",
    "Simplify this Python function if that is possible.\n\n", "Review this code and name its weak points.\n\n",
    "Rewrite this function with other, more descriptive names.\n\n",
    "Translate this Python function to JavaScript.\n\n",
)
ABOUT_PASSAGES = (
    "Give a brief summary of this passage.\n\n", "What are the key points of this passage? Answer as a list.\n\n",
    "Rewrite this passage for a child.\n\n", "Make this text more formal.\n\n", "Make this text shorter.\n\n",
    "Correct the grammar of this text, and keep the rest as it is.\n\n", "Rewrite this text in a friendly tone.\n\n",
    "Write a title and a one-sentence summary for this text.\n\n", "Which facts does this text state? List them.\n\n",
    "Write three questions about this text and answer them from it.\n\n", "Rewrite this text in simple words.\n\n",
    "Write this text as numbered steps.\n\n", "Put this text into the past tense.\n\n",
    "Copy this text and put the most important words in bold.\n\n", "Write a short reply to this message.\n\n",
    "Write this text as an e-mail to a colleague.\n\n", "Extract all names, dates and numbers from this text.\n\n",
    "Write these data as a table.\n\n", "Explain this passage and give an example.\n\n",
    "Turn this text into a dialogue between two people.\n\n",
)
ASKS = (
    "Write a Python function `{name}` that does the following: {what}",
    "Write a Python function with the signature `{head}`. {what}",
    "In Python, how do I write a function that does this? {what}", "Give an example of how to use this: {what}",
)


def requests_about(corpus: Corpus, seed: int) -> list[tuple[str, str]]:
    """(category, request), in an order that follows from the seed; none twice."""
    choices = np.random.default_rng(seed)
    found = dict[str, str]()
    for document in corpus.train:
        for category, text in _of_document(document, choices):
            found.setdefault(text, category)
    texts = list(found)
    return [(found[texts[at]], texts[at]) for at in choices.permutation(len(texts))]


def _of_document(document: Document, choices: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Two requests about each function, one for what its documentation asks, two about longer documentation."""
    for function in functions_of(document):
        code = inspect.cleandoc("\n" + function.text).rstrip() + "\n"
        if len(code) <= MOST_CODE:
            for at in choices.choice(len(ABOUT_CODE) - 1, 2, replace=False):
                yield "code", ABOUT_CODE[at + 1] + code
    for name, head, doc in _documented(document):
        first = doc.split("\n\n")[0].replace("\n", " ")
        yield "code", str(choices.choice(ASKS)).format(name=name, head=head, what=first)
        stub = f"{head}\n    \"\"\"{doc}\n    \"\"\"\n"
        if head.startswith("def") and len(stub) <= MOST_CODE:
            yield "code", ABOUT_CODE[0] + stub.replace("\n\n", "\n")
        if len(doc) >= LEAST_DOC:
            for at in choices.choice(len(ABOUT_PASSAGES), 2, replace=False):
                yield "passage", ABOUT_PASSAGES[at] + doc[:MOST_DOC]


def _documented(document: Document) -> Iterator[tuple[str, str, str]]:
    """(name, first line, documentation) of functions and classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(document[1])
        except SyntaxError:
            return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (doc := ast.get_docstring(node)):
            head = (f"class {node.name}:" if isinstance(node, ast.ClassDef) else
                    f"def {node.name}({ast.unparse(node.args)}):")
            if len(doc) >= 20 and not re.match(r"_*$", node.name):
                yield node.name, head, doc
