"""Modules of gates, made by hand and evaluated for all inputs: what Yosys' ``sat`` does, for few of them."""

import itertools
import json

__all__ = ["cell", "example", "rises"]


def cell(was, kind, parameters=None, **nets):
    """A cell of Yosys' JSON; ``was``: its name before the netlist was flattened."""
    widths = {f"{name}_WIDTH": len(bits) for name, bits in nets.items()}
    return {"type": kind, "parameters": widths | (parameters or {}), "attributes": {"was": f"gemmule {was}"},
            "port_directions": {port: "output" if port in ("Y", "Q") else "input" for port in nets},
            "connections": nets}


def rises(output: str, text: str) -> bool:
    """Whether an output of one bit can be 1."""
    return any(known[bit] for known, ports in _models(text) for bit in ports[output]["bits"])


def example(text, shown=("shown", "apart", "broken")):
    """The outputs where ``wrong`` is 1, or nothing."""
    for known, ports in _models(text):
        if known[ports["wrong"]["bits"][0]]:
            return {name: [bool(known[bit]) for bit in ports[name]["bits"]] for name in shown}
    return {}


def _models(text):
    """What all nets are, for all inputs; and the ports."""
    module = json.loads(text)["modules"]["miter"]
    cells, free = list(module["cells"].values()), module["ports"]["given"]["bits"]
    for values in itertools.product((0, 1), repeat=len(free)):
        known = {"0": 0, "1": 1} | dict(zip(free, values))
        left = cells
        while left:
            later = []
            for one in left:
                nets = {port: [known.get(bit) for bit in bits] for port, bits in one["connections"].items()}
                ins = [value for port, bits in nets.items() if port != "Y" for value in bits]
                if None in ins:
                    later.append(one)
                    continue
                a, b, s = (nets.get(port, [0])[0] for port in "ABS")
                known[one["connections"]["Y"][0]] = {
                    "$and": a & b, "$or": a | b, "$xor": a ^ b, "$xnor": 1 - (a ^ b), "$not": 1 - a,
                    "$mux": b if s else a, "$reduce_or": max(ins)}[one["type"]]
            assert len(later) < len(left)
            left = later
        yield known, module["ports"]
