"""Chat templates: a conversation as the text that its model was trained on.

Templates are programs from strangers: they run in Jinja's sandbox, set up as Hugging Face's libraries do.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gemmule.compiler.files.chat import Chat
from gemmule.io.reading import brief
from gemmule.sw.errors import InputError

__all__ = ["Message", "Template"]

Message = Mapping[str, str]
"""A role (system, user, assistant) and a content."""
MOST_SHOWN = 160
"""Characters of a template's own message."""


class _Generation(Extension):
    """``{% generation %}`` marks what a model is trained to say; here it is what it encloses."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Template:
    """A chat template, ready to render."""

    def __init__(self, chat: Chat, source: str) -> None:
        """``source`` names the model in messages.

        Raises:
            InputError: it is no Jinja template.
        """
        self.tokens, self.source = dict(chat.tokens), source
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                    extensions=[_Generation, loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        try:
            self.template = environment.from_string(chat.template)
        except TemplateSyntaxError as error:
            raise InputError(f"--chat: line {error.lineno} of the chat template of {source} must be Jinja: "
                             f"{brief(str(error.message), MOST_SHOWN)}: mend it and import the model again") from None
        except Exception as error:  # such as RecursionError, or what Python says of the code that Jinja made
            raise InputError(f"--chat: the chat template of {source} cannot be read: {type(error).__name__}: "
                             f"{brief(str(error), MOST_SHOWN)}: mend it and import the model again") from None

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that asks for the next answer.

        Raises:
            InputError: the template refuses the conversation, or fails.
        """
        try:
            text = self.template.render({
                **self.tokens, "messages": [dict(message) for message in messages], "tools": None, "documents": None,
                "add_generation_prompt": True})
            if text:
                return text
            why = "it gives no text"
        except TemplateError as error:
            why = brief(str(error.message), MOST_SHOWN)
        except Exception as error:  # a template is a program, and may raise whatever Python does
            why = f"{type(error).__name__}: {brief(str(error), MOST_SHOWN)}"
        raise InputError(f"--chat: the chat template of {self.source} refuses the conversation ({why}): change "
                         "--system or the text, or leave out --chat")


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None,
             separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    """Jinja's own escapes HTML, which no model was trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
