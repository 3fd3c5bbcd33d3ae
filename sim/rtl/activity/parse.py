"""Verilator's C++ for the edge of the one clock, as statements with what they read and write.

The text is regular: one statement or one ``if`` at an indentation of four, members as ``vlSelfRef.name``. Anything
else is refused, and the simulator is built as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NAME", "Function", "Model", "Statement", "UnknownCodeError", "parse"]

NAME = re.compile(r"vlSelfRef\.(\w+)|(?<![\w.])(L\d+_\w+)")
"""A member of the model, or a local variable as :func:`parse` renames it."""
_FUNCTION = re.compile(r"^void Vtop___024root___nba_sequent__TOP__(\d+)\(Vtop___024root\* vlSelf\) \{\n", re.MULTILINE)
_EVALUATION = re.compile(r"^void Vtop___024root___eval_nba\(.*\{\n[^}]*?// Body\n([^}]*)\}\n\}\n", re.MULTILINE)
_TYPE = r"(?:CData|SData|IData|QData|VlWide<\d+>)/\*\d+:0\*/"
_MEMBER = re.compile(rf"^ +({_TYPE}|VlUnpacked<.*>|std::string) (\w+);", re.MULTILINE)
_PORT = re.compile(r"^ +VL_(IN|OUT)(8|16|64|W|)\((\w+),(\d+),0(?:,(\d+))?\);", re.MULTILINE)
_LOCAL = re.compile(rf" +({_TYPE}) (\w+);\n")
_START = re.compile(r"(?:^|(?<=[{};]))\s*(?:vlSelfRef\.(\w+)|(L\d+_\w+))")
_OUT = re.compile(r"VL_\w*W\w*\((?:\w+, *)*?\s*(?:vlSelfRef\.(\w+)|(L\d+_\w+))")
"""What a macro for wide values may write."""
_SIMPLE = re.compile(r"    (?:vlSelfRef\.(\w+)|(L\d+_\w+))\s*=(?!=)")
_WIDE = re.compile(r"    VL_(?:ZERO_W|ASSIGN_W|EXTENDS?_W\w|SHIFT\w_WWI)\((?:\w+, *)*?\s*"
                   r"(?:vlSelfRef\.(\w+)|(L\d+_\w+))[,)]")
_OPAQUE = re.compile(r"\bwhile\b|\bfor\b|::|\bstd\b|vlSymsp|VL_(?:F[A-Z]|CONCATN|WRITE|RAND|TIME|STOP|FINISH|SFORM)")
_CLOCK = "clk"


class UnknownCodeError(Exception):
    """The text is not what this reads; the message says where."""


@dataclass(frozen=True)
class Statement:
    """One statement with all that is inside it."""

    text: str
    writes: frozenset[str]
    reads: frozenset[str]
    """What its expressions read; of a partial or conditional write the old value is not among it."""
    whole: str | None
    """The variable that it sets whatever happened before, if it is such a statement."""
    opaque: bool
    """It has effects outside the model, or a form that is not looked into: it runs in every cycle."""

    @property
    def keeps(self) -> frozenset[str]:
        """What it reads, and what it may leave as it was."""
        return self.reads if self.whole else self.reads | self.writes


@dataclass(frozen=True)
class Function:
    """Where the body of a function stands in its file."""

    path: Path
    begin: int
    end: int


@dataclass(frozen=True)
class Model:
    """What happens at the edge of the clock, in order."""

    statements: tuple[Statement, ...]
    functions: tuple[Function, ...]
    types: Mapping[str, str]
    """C++ type of every member, with its bits in a comment."""
    locals: Mapping[str, str]
    inputs: tuple[str, ...]
    """Ports that others write, without the clock."""


def _types(header: str) -> tuple[dict[str, str], tuple[str, ...]]:
    types = {name: kind for kind, name in _MEMBER.findall(header)}
    inputs = []
    for way, size, name, high, words in _PORT.findall(header):
        kind = {"8": "CData", "16": "SData", "": "IData", "64": "QData", "W": f"VlWide<{words}>"}[size]
        types[name] = f"{kind}/*{high}:0*/"
        if way == "IN" and name != _CLOCK:
            inputs.append(name)
    return types, tuple(inputs)


def _lines(number: int, body: str, local: dict[str, str]) -> Iterator[str]:
    """The statements of a function's body as text, its local variables renamed and noted in ``local``."""
    head, found, main = body.partition("    // Body\n")
    if not found:
        raise UnknownCodeError(f"no body in function {number}")
    _, _, declared = head.partition("    // Locals\n")
    names: dict[str, str] = {}
    begins = []
    for line in declared.splitlines(keepends=True):
        if match := _LOCAL.fullmatch(line):
            names[match[2]] = f"L{number}_{match[2]}"
            local[names[match[2]]] = match[1]
        else:
            begins.append(line)
    if names:
        known = re.compile(r"(?<![\w.])(" + "|".join(sorted(names, key=len, reverse=True)) + r")(?!\w)")
    current: list[str] = []
    for line in [*begins, *main.splitlines(keepends=True), "    ;"]:
        if line.startswith("#") or not line.startswith("    "):
            raise UnknownCodeError(line.strip())
        if line[4] not in " }" and current:
            text = "".join(current)
            yield known.sub(lambda match: names[match[1]], text) if names else text
            current = []
        current.append(line)


def _names(text: str) -> list[str]:
    return [member or local for member, local in NAME.findall(text)]


def _statement(text: str) -> Statement:
    names = _names(text)
    if _OPAQUE.search(text):
        return Statement(text, frozenset(names), frozenset(names), None, True)
    if match := _SIMPLE.match(text) or _WIDE.match(text):
        whole = match[1] or match[2]
        reads = frozenset(names) - ({whole} if names.count(whole) == 1 else set())
        return Statement(text, frozenset((whole,)), reads, whole, False)
    writes = frozenset(a or b for pattern in (_START, _OUT) for a, b in pattern.findall(text))
    if not writes:
        raise UnknownCodeError(text.strip()[:200])
    rest = _START.sub(" ", text)
    return Statement(text, writes, frozenset(_names(rest)), None, False)


def _needed(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """All but those that set a local variable to zero before another one sets it as a whole."""
    uses: dict[str, list[int]] = {}
    for i, each in enumerate(statements):
        for name in each.writes | each.reads:
            if name.startswith("L"):
                uses.setdefault(name, []).append(i)
    dead = set()
    for name, places in uses.items():
        first, *others = (statements[i] for i in places[:2])
        zero = re.fullmatch(rf"    (?:{name} = 0|VL_ZERO_W\(\d+, {name}\));\n", first.text)
        if zero and others and others[0].whole == name and name not in others[0].reads:
            dead.add(places[0])
    return tuple(each for i, each in enumerate(statements) if i not in dead)


def parse(folder: Path) -> Model:
    """What Verilator wrote into ``folder``.

    Raises:
        UnknownCodeError: it has another form than expected.
    """
    types, inputs = _types((folder / "Vtop___024root.h").read_text(encoding="utf-8"))
    functions, bodies = {}, {}
    evaluation = ""
    for path in folder.glob("Vtop___024root__*.cpp"):
        text = path.read_text(encoding="utf-8")
        for match in _FUNCTION.finditer(text):
            end = text.index("\n}\n", match.end()) + 1
            functions[int(match[1])] = Function(path, match.end(), end)
            bodies[int(match[1])] = text[match.end():end]
        for found in _EVALUATION.finditer(text):
            evaluation = found[1]
    called = re.findall(r"nba_sequent__TOP__(\d+)\(vlSelf\);\n", evaluation)
    one = re.match(r"    if \(\(1ULL & vlSelfRef\.__VnbaTriggered\[0U\]\)\) \{\n", evaluation)
    if not one or [int(each) for each in called] != sorted(functions) or len(called) + 1 != evaluation.count("\n"):
        raise UnknownCodeError("more than the edge of one clock")
    local: dict[str, str] = {}
    statements = [_statement(text) for number in sorted(bodies) for text in _lines(number, bodies[number], local)]
    for each in statements:
        for name in each.writes:
            if name not in types and name not in local:
                raise UnknownCodeError(f"type of {name}")
    return Model(_needed(statements), tuple(functions[i] for i in sorted(functions)), types, local, inputs)
