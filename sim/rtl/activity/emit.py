"""Groups of statements as C++: each runs if its flag is set, and sets the flags of those that read what it changed.

A group is a function of what it reads, so one whose inputs are as they were would write what is there already. Where
it reads a variable before it writes it (a register), it counts among its own readers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gemmule.sim.rtl.activity.order import Group
from gemmule.sim.rtl.activity.parse import Model

__all__ = ["Emitted", "emit"]

_ASSIGN = re.compile(r"(?P<before>(?:^|(?<=[{};]\n)))(?P<indent> +)(?P<to>(?:vlSelfRef\.\w+|L\d+_\w+)\b(?:\[.*?)?)"
                     r"\s+=\s(?P<value>.*?);\n", re.DOTALL)

HELPERS = """\
template <class T> inline QData gate_differs(const T a, const T b) { return a ^ b; }
template <std::size_t N> inline QData gate_differs(const VlWide<N>& a, const VlWide<N>& b) {
    EData bits = 0;
    for (std::size_t i = 0; i < N; ++i) bits |= a[i] ^ b[i];
    return bits;
}
// Bits above the result's are of no account in both.
inline IData gate_extended(int, int bits, IData value) {
    return static_cast<IData>(static_cast<std::int32_t>(value << (32 - bits)) >> (32 - bits));
}
inline IData gate_product(int, IData a, IData b) { return a * b; }
#define VL_EXTENDS_II gate_extended
#define VL_MULS_III gate_product
"""


@dataclass(frozen=True)
class Emitted:
    """Text of a simulator's code."""

    groups: tuple[str, ...]
    """In the order in which they run."""
    header: str
    """Declarations that they need."""
    begin: str
    """What comes before them in every evaluation."""
    definition: str


def _kind(declared: str) -> str:
    return declared.split("/*")[0]


def _is_array(declared: str) -> bool:
    return declared.startswith("VlUnpacked")


def _name(assignment: re.Match[str]) -> str:
    """The variable that is assigned to."""
    return assignment["to"].removeprefix("vlSelfRef.").partition("[")[0]


def _holds(to: str, value: str, declared: str) -> bool:
    """Whether an assignment leaves a variable as it is; variables hold no bits above their own."""
    found = re.fullmatch(r"(CData|SData|IData|QData)/\*(\d+):0\*/", declared)
    if not found or "[" in to:
        return False
    bare = re.sub(r"\s+|\(IData\)|[()]", "", value)
    mask = (2 << int(found[2])) - 1
    masked = re.fullmatch(rf"0x([0-9a-f]+)U(?:LL)?&{re.escape(to)}", bare)
    return bare == to or bool(masked and int(masked[1], 16) == mask)


def _paths(text: str) -> Iterator[tuple[re.Match[str], tuple[int, ...]]]:
    """The assignments of a statement with the branches that they are in, each by a number."""
    matches = {match.start("indent"): match for match in _ASSIGN.finditer(text)}
    path: list[int] = []
    place = 0
    for number, line in enumerate(text.splitlines(keepends=True)):
        if line.lstrip().startswith("}"):
            path.pop()
        if place in matches:
            yield matches[place], tuple(path)
        if line.rstrip().endswith("{"):
            path.append(number)
        place += len(line)


def _in_place(group: Group, watched: Iterable[str]) -> frozenset[str]:
    """Those of the variables whose every write can be compared with what was there.

    Two writes on one path would be a change and a change back: such a variable is compared at the end.
    """
    found: defaultdict[str, list[tuple[int, tuple[int, ...], str]]] = defaultdict(list)
    writers: defaultdict[str, int] = defaultdict(int)
    for number, each in enumerate(group.statements):
        for match, path in () if each.opaque else _paths(each.text):
            found[_name(match)].append((number, path, match["to"]))
        for name in each.writes:
            writers[name] += 1
    good = set()
    for name in watched:
        places = found[name]
        paths: defaultdict[tuple[int, str], list[tuple[int, ...]]] = defaultdict(list)
        for number, path, to in places:
            paths[number, to].append(path)
        once = len({to for _, to in paths}) == len(paths) and all(
            one[:len(other)] != other and other[:len(one)] != one
            for same in paths.values() for i, one in enumerate(same) for other in same[:i])
        if places and once and len({number for number, *_ in places}) == writers[name]:
            good.add(name)
    return frozenset(good)


def _rewritten(text: str, targets: Mapping[str, str], declared: Mapping[str, str]) -> str:
    """A statement without assignments that hold, those to ``targets`` compared."""
    def change(match: re.Match[str]) -> str:
        to, name = match["to"], _name(match)
        if _holds(to, match["value"], declared.get(name, "")):
            return match["before"]
        if name in targets:
            return (f"{match['before']}{match['indent']}{{ const auto was = {to}; {to} = {match['value']}; "
                    f"{targets[name]} |= gate_differs(was, {to}); }}\n")
        return match[0]
    return _ASSIGN.sub(change, text)


def emit(model: Model, groups: Sequence[Group]) -> Emitted:
    """The groups as C++, in this order."""
    users: defaultdict[str, set[int]] = defaultdict(set)
    readers: defaultdict[str, set[int]] = defaultdict(set)
    for number, group in enumerate(groups):
        for each in group.statements:
            for name in each.keeps | each.writes:
                users[name].add(number)
            for name in each.reads:
                readers[name].add(number)
    shared = {name for name in model.locals if len(users[name]) > 1}
    texts = tuple(_group(model, number, groups, readers, shared) for number in range(len(groups)))
    inputs = "".join(f"    {_kind(model.types[name])} in_{name};\n" for name in model.inputs)
    kept = "".join(f"    {model.locals[name]} {name};\n" for name in sorted(shared))
    header = (f"{HELPERS}struct Gate {{\n    unsigned char on[{len(groups)}];\n    bool begun;\n"
              f"{inputs}{kept}}};\nextern Gate gate;\n")
    changed = " | ".join(f"gate_differs(gate.in_{name}, vlSelfRef.{name})" for name in model.inputs)
    begin = (f"    if (!gate.begun || ({changed or '0'})) {{\n        gate.begun = true;\n"
             "        for (auto& each : gate.on) each = 1;\n"
             + "".join(f"        gate.in_{name} = vlSelfRef.{name};\n" for name in model.inputs) + "    }\n")
    return Emitted(texts, header, begin, "Gate gate;\n")


def _readers(group: Group, name: str, number: int, readers: Mapping[str, set[int]]) -> set[int]:
    """The groups that a change of a variable concerns; itself, where it reads what the last run left."""
    found = set(readers[name])
    if number in found:
        found.discard(number)
        last = max(i for i, each in enumerate(group.statements) if name in each.writes)
        for each in group.statements[:last + 1]:
            if name in each.reads:
                found.add(number)
            if name in each.reads or each.whole == name:
                break
    return found


def _group(model: Model, number: int, groups: Sequence[Group], readers: Mapping[str, set[int]],
           shared: set[str]) -> str:
    group, declared = groups[number], {**model.types, **model.locals}
    statements = group.statements
    # In a block that works as a whole, what comes before (and thus runs in the next cycle) need not be told apart.
    next_cycle: set[int] = set()
    concerns: defaultdict[frozenset[int], list[str]] = defaultdict(list)
    for name in sorted(frozenset[str]().union(*(each.writes for each in statements))):
        found = {each for each in _readers(group, name, number, readers) if not groups[each].opaque}
        if name in model.locals:  # the next cycle sets it anew
            found = {each for each in found if each > number}
        if group.whole:
            early = {each for each in found if each < number and groups[each].whole}
            next_cycle |= early
            found -= early
        if found and declared[name] != "std::string":
            concerns[frozenset(found)].append(name)
    ordered = sorted(concerns.items(), key=lambda item: sorted(item[0]))
    flags = {name: f"changed{i}" for i, (_, names) in enumerate(ordered) for name in names}
    in_place = _in_place(group, flags)
    targets = {name: flag for name, flag in flags.items() if name in in_place}
    text = "".join(each.text if each.opaque else _rewritten(each.text, targets, declared) for each in statements)
    before = [f"        QData changed{i} = 0;\n" for i in range(len(ordered))]
    before += [
        f"        {declared[name]} {name}{'' if declared[name].startswith('VlWide') else ' = 0'};\n"
        for name in sorted({name for each in statements for name in each.writes | each.keeps
                            if name in model.locals and name not in shared})]
    after = [_on(next_cycle)] if next_cycle else []
    for name, flag in flags.items():
        if name in in_place:
            continue
        place = name if name in model.locals else f"vlSelfRef.{name}"
        if _is_array(declared[name]):
            after.append(f"        {flag} = 1;\n")
        else:
            before.append(f"        const auto was_{name} = {place};\n")
            after.append(f"        {flag} |= gate_differs(was_{name}, {place});\n")
    after += [f"        if (changed{i}) {{\n{_on(found)}        }}\n" for i, (found, _) in enumerate(ordered)]
    body = "".join(before) + text + "".join(after)
    if shared:
        body = re.sub(r"(?<![\w.])L\d+_\w+", lambda match: f"gate.{match[0]}" if match[0] in shared else match[0], body)
    guard = "    {\n" if group.opaque else f"    if (gate.on[{number}]) {{\n        gate.on[{number}] = 0;\n"
    return f"{guard}{body}    }}\n"


def _on(numbers: Iterable[int]) -> str:
    return "".join(f"        gate.on[{each}] = 1;\n" for each in sorted(numbers))
