"""Names of modules and instances: plain, one for one, and nothing else of the text changed."""

import re

from gemmule.hw.flow.names import instances, module_texts, plain

from .conftest import Device

WRITTEN = """\
module \\top.a$12 (x, \\end );
endmodule

(* keep = 1 *)
module \\top.a_b (x);
endmodule

module \\top.a.b (x);
endmodule

module top(x);
  wire a;
  \\top.a$12  \\a$12  (
    .\\end (\\b$3 ),
    .x(x)
  );
  \\top.a_b  a_b (
    .x(x)
  );
  \\top.a.b  \\end  (
    .x(x)
  );
endmodule
"""
HEADS = re.compile(r"^module (\\\S+|\w+)", re.MULTILINE)
DECLARED = re.compile(r"^  (?:input|output|wire|reg) (?:signed )?(?:\[\d+:\d+\] )?(\\\S+|\w+)", re.MULTILINE)
INSTANCES = re.compile(r"^  (\\\S+|\w+) +(\\\S+|\w+) +\($", re.MULTILINE)


def test_names_are_legal_and_unique() -> None:
    text, modules = plain(WRITTEN)
    assert modules == {"top_a": "top.a", "top_a_b": "top.a_b", "top_a_b_2": "top.a.b", "top": "top"}
    assert HEADS.findall(text) == list(modules)
    assert INSTANCES.findall(text) == [("top_a", "u_a"), ("top_a_b", "a_b"), ("top_a_b_2", "u_end")]
    assert ".\\end (\\b$3 )," in text  # names of signals stay
    assert dict(instances(text, "top")) == {"u_a": "top_a", "a_b": "top_a_b", "u_end": "top_a_b_2"}
    assert list(module_texts(text)) == list(modules)
    assert module_texts(text)["top_a_b"].startswith("(* keep = 1 *)\nmodule top_a_b(")


def test_the_device_has_plain_names(device: Device) -> None:
    heads, inside = HEADS.findall(device.plain.text), INSTANCES.findall(device.plain.text)
    assert len(heads) == len(set(heads)) == len(inside) + 1 == len(device.plain.modules) > 100
    for name in [*heads, *(word for pair in inside for word in pair)]:
        assert re.fullmatch(r"[A-Za-z]\w*", name), name
    assert set(heads) == {"gemmule", *(module for module, _ in inside)}
    paths = [path for path, _ in instances(device.plain.text, "gemmule")]
    assert len(paths) == len(inside)
    assert {"csr", "core.u_issue.u_claims", "core.units.matrix.mesh"} <= set(paths)


def test_only_names_of_modules_and_instances_differ(device: Device) -> None:
    """Put back into the new text, the old names give what Amaranth and Yosys wrote, to the byte."""
    old, new = device.written, device.plain.text
    names = dict(zip(HEADS.findall(new), HEADS.findall(old), strict=True))
    assert len(set(names.values())) == len(names)
    labels = iter([name for _, name in INSTANCES.findall(old)])

    def spaced(name: str) -> str:
        return f"{name} " if name.startswith("\\") else name

    def module(found: re.Match[str]) -> str:
        return f"module {spaced(names[found[1]])}"

    def instance(found: re.Match[str]) -> str:
        return f"  {spaced(names[found[1]])} {spaced(next(labels))} ("

    assert INSTANCES.sub(instance, HEADS.sub(module, new)) == old
    # And an instance's new name is no other name of its module.
    for text in module_texts(new).values():
        declared = {name.removeprefix("\\") for name in DECLARED.findall(text)}
        assert declared
        labels = [name for _, name in INSTANCES.findall(text)]
        assert len(labels) == len({*labels} - declared)
