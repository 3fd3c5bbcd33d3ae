"""One small graph for all networks: its nodes, the rows of a pass, the cache of keys and values."""

from gemmule.compiler.ir.cache import Cache
from gemmule.compiler.ir.float_interpreter import FloatInterpreter
from gemmule.compiler.ir.functions import activate
from gemmule.compiler.ir.graph import FamilyName, Graph, Network, listing
from gemmule.compiler.ir.head_pruning import HeadPruning
from gemmule.compiler.ir.integer_interpreter import IntegerInterpreter
from gemmule.compiler.ir.nodes import (
    RESCALE_BITS,
    Activation,
    Add,
    AnyNode,
    Attention,
    Borrowed,
    DType,
    Embedding,
    Form,
    Function,
    Linear,
    Node,
    Norm,
    Plane,
    Position,
    Product,
    Rope,
    RopeScaling,
    Softmax,
    Type,
    form_of,
    softmax_of,
)
from gemmule.compiler.ir.pages import Pages
from gemmule.compiler.ir.part import layer_part, residuals
from gemmule.compiler.ir.pruning_interpreter import PruningInterpreter
from gemmule.compiler.ir.rows import Rows
from gemmule.compiler.ir.signature import Signature, Tensor, signature
from gemmule.compiler.ir.token_pruning import TokenPruning

__all__ = [
    "RESCALE_BITS", "Activation", "Add", "AnyNode", "Attention", "Borrowed", "Cache", "DType", "Embedding",
    "FamilyName", "FloatInterpreter", "Form", "Function", "Graph", "HeadPruning", "IntegerInterpreter", "Linear",
    "Network", "Node",
    "Norm", "Pages", "Plane", "Position", "Product", "PruningInterpreter", "Rope", "RopeScaling", "Rows", "Signature",
    "Softmax", "Tensor", "TokenPruning", "Type", "activate", "form_of", "layer_part", "listing", "residuals",
    "signature", "softmax_of",
]
