"""Compiler: checkpoint to quantised model to one program; an integer interpreter as its golden."""

from gemmule.compiler.checkpoint import Checkpoint, DecoderShape, load_checkpoint
from gemmule.compiler.decoder import compile_decoder
from gemmule.compiler.decoder_program import DecoderProgram
from gemmule.compiler.errors import CompileError
from gemmule.compiler.interpreter import Interpreter, KvCache
from gemmule.compiler.listing import listing
from gemmule.compiler.program import Program
from gemmule.compiler.qmodel import QuantModel, load_quantized, save_quantized
from gemmule.compiler.quantize import quantize

__all__ = [
    "Checkpoint", "CompileError", "DecoderProgram", "DecoderShape", "Interpreter", "KvCache", "Program",
    "QuantModel", "compile_decoder", "listing", "load_checkpoint", "load_quantized", "quantize", "save_quantized",
]
