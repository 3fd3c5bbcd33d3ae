"""Methods of decoding by name; another one is one more file and its name here."""

from gemmule.sw.decoding.methods import ar, draft, pld
from gemmule.sw.decoding.methods.method import HUGGING_FACE, Lookup, Method, Request

__all__ = ["HUGGING_FACE", "METHODS", "Lookup", "Method", "Request"]

METHODS: dict[str, Method] = {module.METHOD.name: module.METHOD for module in (ar, draft, pld)}
