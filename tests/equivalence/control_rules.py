"""Rules of control commands, and each one wrong, as in ``mutant_rules.py``: what commands mean, and when they come."""

from __future__ import annotations

__all__ = ["CONTROL_RULES"]

FREES = """\
        if stream[d, FREES]:
            f.anchored = 0
"""
KEEPS = """\
        if not f.anchored:
            f.kept = f.reads
"""

CONTROL_RULES: dict[str, tuple[str, str, str]] = {
    # SET, PARAMS
    "set: modulus once": ("control", "value -= modulus", "value %= modulus"),
    "set: modulus itself": ("control", "if modulus and value >= modulus:", "if modulus and value > modulus:"),
    "set: modulus below 0": ("control", "value += modulus\n", "value = 0\n"),
    "set: modulus below 0 once": ("control", "value += modulus\n", "value %= modulus\n"),
    "set: largest": ("control", "min(max(value, 0), _MAX_LENGTH)", "max(value, 0) & _MAX_LENGTH"),
    "set: below 0": ("control", "min(max(value, 0), _MAX_LENGTH)", "min(abs(value), _MAX_LENGTH)"),
    "set: register 0": ("control", "value = local.lengths[register] if register else _MAX_LENGTH\n",
                        "value = local.lengths[register] if register else 0\n"),
    "set: index without a register": ("control", "(local.lengths[register] if register else 0)",
                                      "local.lengths[register or 1]"),
    "set: index by register": ("control", "(local.lengths[register] if register else 0)", "0"),
    "set: which half": ("control", "16 * (_index(row, local) & 1)", "16 * (~_index(row, local) & 1)"),
    "set: half of which word": ("control", "_index(row, local) // 2 if", "_index(row, local) // 4 * 2 if"),
    "set: half is unsigned": ("control", "(value >> 16 * (_index(row, local) & 1)) & _MAX_LENGTH",
                              "((value >> 16 * (_index(row, local) & 1)) + 32768 & _MAX_LENGTH) - 32768"),
    "set: word is signed": ("control", "value = local.words[at]", "value = local.words[at] & 0xFFFFFFFF"),
    "set: amount": ("control", "value += row[_F_AMOUNT]", "value += row[_F_AMOUNT] & 0x7FFFFFFF"),
    "set: displacement of which base": ("control", "value = local.displacements[register]",
                                        "value = local.displacements[number]"),
    "displacement: the space": ("control", "value & ((1 << cfg[_ADDRESS_BITS]) - 1)", "value"),
    "displacement: address": ("control", "local.bases[number] += change", "pass"),
    "displacement: from where": ("control", "local.bases[number] += change", "local.bases[number] += shift"),
    "displacement: limit": ("control", "local.limits[number] -= change", "pass"),
    "params: order": ("control", "row[_F_FIRST + 1 + i]", "row[_F_FIRST + _PARAMS_WORDS - i]"),
    "params: where": ("control", "local.words[first + i] =", "local.words[first + i & ~1] ="),
    "launch: lengths": ("control", "local.lengths[:] = lengths", "pass"),
    "launch: displacements": ("control", "local.displacements[:] = 0", "pass"),
    "launch: parameters stay": ("control", "local.written[:] = False", "local.words[:] = 0"),
    "launch: counted without a trace": ("sim.stream", "self.local.words[:] = words", "pass"),
    # what faults
    "legal: waits": ("control", "range(_F_OP + 1, _F_REST)", "range(_F_OP + 6, _F_REST)"),
    "legal: flags": ("control", "if row[i] != 0:", "if row[i] != 0 and i != _F_OP + 6:"),
    "legal: dynamic row": ("control", "if row[i] != 0:", "if row[i] != 0 and not _F_OP + 6 < i < _F_REST - 1:"),
    "legal: predicate": ("control", "range(_F_OP + 1, _F_REST)", "range(_F_OP + 1, _F_REST - 1)"),
    "legal: operation": ("control", "if row[_F_OP] == _REPEAT else _ILLEGAL", "if row[_F_OP] == _REPEAT else _NONE"),
    "legal: source": ("control", "source > _HALF or", "source > _HALF + 1 or"),
    "legal: register of a source": ("control", "register >= _LENGTHS):", "register > _LENGTHS):"),
    "legal: register of a displacement": ("control", "source != _DISPLACEMENT and register >=", "register >="),
    "legal: LEN 0": ("control", "number == 0 or number >= _LENGTHS", "number >= _LENGTHS"),
    "legal: LEN 16": ("control", "number == 0 or number >= _LENGTHS", "number == 0"),
    "legal: modulus of a displacement": ("control", "else modulus != 0", "else False"),
    "legal: words": ("control", "if at >= cfg[_WORDS]:", "if at >= cfg[_WORDS] - 1:"),
    "legal: last words of PARAMS": ("control", "first + _PARAMS_WORDS > cfg", "first + _PARAMS_WORDS >= cfg"),
    "legal: rows": ("control", "            return _ROWS\n        value", "            return _ILLEGAL\n        value"),
    "legal: empty body": ("control", "or body == 0 or", "or"),
    "legal: fourth body": ("control", "depth == _MAX_DEPTH or", "depth == _MAX_DEPTH - 1 or"),
    "legal: two ends": ("control", "(left - 1 if depth else left)", "left"),
    "legal: end of the program": ("control", "(left - 1 if depth else left)", "left - 1"),
    "legal: closed body": ("control", "if sequence[_CLOSED] or body", "if body"),
    "legal: behind a body": ("control", "    sequence[_CLOSED] = 0\n", ""),
    "fault: place": ("sim.simulator", "int(stream.places[fault_index]) if fault", "int(fault_index) if fault"),
    # REPEAT
    "repeat: register 0": ("control", "value = max((local.lengths[register] if register else _MAX_LENGTH)",
                           "value = max((local.lengths[register] if register else 0)"),
    "repeat: offset": ("control", "- row[_F_OFFSET], 0)", "- (row[_F_OFFSET] & 255), 0)"),
    "repeat: below the offset": (
        "control", "max((local.lengths[register] if register else _MAX_LENGTH) - row[_F_OFFSET], 0)",
        "abs((local.lengths[register] if register else _MAX_LENGTH) - row[_F_OFFSET])"),
    "repeat: rounds up": ("control", "(value + (1 << row[_F_SHIFT]) - 1) >>", "value >>"),
    "repeat: cap": ("control", ">> row[_F_SHIFT], row[_F_CAP])", ">> row[_F_SHIFT], row[_F_CAP] + 1)"),
    "repeat: none": ("control", "if times == 0:", "if times < 0:"),
    "repeat: turns": ("control", "if loop[_TURNS] > 1:", "if loop[_TURNS] > 2:"),
    "repeat: rest": ("control", "= loop[_REST], depth - 1", "= loop[_REST] - 1, depth - 1"),
    # the first stage, and the cycle before an effect
    "hold": ("sim.timing.front", "ready[d] += p.control", "pass"),
    "hold: what follows": ("sim.timing.front", "f.take_next = t + 1 + p.control", "f.take_next = t + p.control"),
    "quiet cycle": ("sim.timing.front", "not (f.pending >= 0 and t == f.effect - 1)", "True"),
    "quiet cycle: of one that faults": ("sim.timing.front", "(f.pending >= 0 and t == f.effect - 1)",
                                        "(f.pending >= 0 and t == f.effect - 1 and stream[f.pending, TIMES] >= 0)"),
    "quiet cycle: of a body that does not come": (
        "sim.timing.front", "(f.pending >= 0 and t == f.effect - 1)",
        "(f.pending >= 0 and t == f.effect - 1 and stream[f.pending, TIMES])"),
    "control takes no queue": ("sim.timing.engine", "return u == CONTROL_UNIT or k", "return u != CONTROL_UNIT and k"),
    "behind a fault": ("sim.timing.program", "good, end = i, min(end, i + 1 + behind)", "good, end = i, i + 1"),
    "end: last control command": ("sim.timing.engine", "        clock.last = clock.t\n", "        pass\n"),
    "end: dropped commands": ("sim.timing.engine", "sent == good == count and run.front.dropping == 0",
                              "sent == good == count"),
    "end: last dropped command": ("sim.timing.front", "        f.last = t\n", ""),
    # the window
    "window: which bodies": ("sim.timing.front", "short = body <= p.fetch_queue", "short = body < p.fetch_queue"),
    "window: takes of a body": ("sim.timing.front", KEEPS + "        ready", "        f.kept = f.reads\n        ready"),
    "window: frees at once": ("sim.timing.front", FREES + KEEPS, KEEPS + FREES),
    "window: drops in a body": ("sim.timing.front", "        f.last = t\n" + KEEPS,
                                "        f.last = t\n        f.kept = f.reads\n"),
    "window: room": ("sim.timing.front", "p.fetch_queue - (f.requested - f.kept)",
                     "p.fetch_queue - (f.requested - f.reads)"),
    "window: back": ("sim.timing.program", "stream[i, BACK] = place + 1 - sequence[_NEXT]", "pass"),
    "window: outermost body": ("sim.timing.program", "if anchor == 0 and body <=", "if body <="),
    "drop: beside a take": ("sim.timing.front", "take = there and not drop and room", "take = there and room"),
    "drop: into a full resolve": ("sim.timing.front", "drop = f.dropping > 0 and there",
                                  "drop = f.dropping > 0 and there and room"),
    "drop: one a cycle": ("sim.timing.front", "        f.dropping -= 1\n        f.reads += 1\n",
                          "        f.reads += f.dropping\n        f.dropping = 0\n"),
    # fetch
    "fetch: again": ("sim.timing.front", "1 if short else times", "1"),
    "fetch: short body once": ("sim.timing.front", "1 if short else times", "times"),
    "fetch: ends a burst": ("sim.timing.front", "    if ahead < body:\n", "    if ahead < body and not short:\n"),
    "fetch: body all requested": ("sim.timing.front", "    if ahead < body:\n", "    if ahead <= body:\n"),
    "fetch: bodies in a kept one": ("sim.timing.front", "    if f.anchored:\n        return\n    ahead", "    ahead"),
    "fetch: where a body begins": ("sim.timing.front", "= f.place - ahead, body,", "= f.place, body,"),
    "fetch: behind a body": ("sim.timing.front", "f.left - (body - ahead)", "f.left - body"),
    "fetch: turns": ("sim.timing.front", "if loop[_TURNS] > 1:", "if loop[_TURNS] > 2:"),
}
"""Rule: module below ``gemmule``, what it says, and the mutant."""
