"""Compiler: a quantised network to one program; an integer interpreter as its golden."""

from gemmule.compiler.errors import CompileError
from gemmule.compiler.listing import listing
from gemmule.compiler.program import Program

__all__ = ["CompileError", "Program", "listing"]
