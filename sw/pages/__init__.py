"""Pages and figures of the documentation that are made from the code: ``python -m gemmule.sw.pages``.

One file a page, each with a function that returns its text; :data:`PAGES` says where they go. Nothing here is
imported by anything but the command and ``tests/test_docs.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.pages.architectures import architectures_page
from gemmule.sw.pages.code_map import code_map_page
from gemmule.sw.pages.command_line import command_line_page
from gemmule.sw.pages.configuration import configuration_page
from gemmule.sw.pages.isa import isa_page
from gemmule.sw.pages.memory_map import memory_svg
from gemmule.sw.pages.mesh import mesh_svg
from gemmule.sw.pages.methods import method_page, methods_page
from gemmule.sw.pages.mutants import mutants_page
from gemmule.sw.pages.registers import registers_page
from gemmule.sw.pages.schemas import schema_text
from gemmule.sw.pages.system import system_svg
from gemmule.sw.records import RECORDS

__all__ = ["PAGES"]

PAGES: dict[str, Callable[[], str]] = {
    "docs/architectures.md": architectures_page,
    "docs/code-map.md": code_map_page,
    "docs/command-line.md": command_line_page,
    "docs/configuration.md": configuration_page,
    "docs/isa.md": isa_page,
    "docs/methods.md": methods_page,
    **{f"docs/decoding/{name}.md": partial(method_page, name) for name in METHODS},
    "docs/mutants.md": mutants_page,
    "docs/registers.md": registers_page,
    "docs/img/system.svg": system_svg,
    "docs/img/mesh.svg": mesh_svg,
    "docs/img/memory.svg": memory_svg,
    **{f"docs/schemas/{command}.json": partial(schema_text, command) for command in RECORDS},
}
"""Every generated file, by its path in the repository."""
