"""The C header: every constant is the one of Python, and commands built with it are those of the encoder."""

from __future__ import annotations

import re
import subprocess
from enum import IntEnum
from itertools import accumulate
from pathlib import Path

from gemmule import csr, operations
from gemmule.config import load_config
from gemmule.csr import CAUSES, COUNTERS, Control, Csr, Status
from gemmule.isa import BODY, CONTROL, CONTROL_BODY, HEADER, COp, FrontEnd, SOp, Unit, VOp, decode, encode
from gemmule.resolve import FAULTS
from gemmule.sim.fuzz.generate import generate
from gemmule.sw.driver.header import header_text

from .c_library import compiled

CONFIG = load_config("edge")


def expected() -> dict[str, int]:
    """Every constant by what the contracts say, written down apart from the generator."""
    found = {f"CSR_{register.name}": int(register) for register in Csr} | {
        "CSR_BYTES": 4096, "IDENTITY": csr.IDENTITY, "WATCHDOG_CYCLES": 1 << 20, "LENGTHS": 16, "BASES": 32,
        "MAX_LENGTH": 65535, "STATUS_FAULT_SHIFT": 8, "STATUS_FAULT_MASK": 15, "COUNTERS": 31, "COUNTER_BITS": 48,
        "CAUSES": len(CAUSES), "COMMAND_BYTES": 32, "MAX_COMMANDS": (1 << 24) - 1, "MAX_DEPTH": 4, "MAX_WAIT": 63,
        "PREDICATES": 4, "PARAMETER_BITS": 32, "PARAMS_WORDS": 5, "CONFIGURATION": CONFIG.identity}
    found |= {f"CONTROL_{bit.name}": int(bit) for bit in Control} | {f"STATUS_{bit.name}": int(bit) for bit in Status}
    found |= {f"FAULT_{name.upper()}": code for code, name in enumerate(FAULTS)}
    found |= {f"COUNTER_{name.upper()}": number for number, name in enumerate(COUNTERS)}
    for name, kind in (("UNIT", Unit), ("UNIT", FrontEnd), ("OP_VECTOR", VOp), ("OP_SELECT", SOp),
                       ("OP_CONTROL", COp), ("TARGET", operations.Target), ("SOURCE", operations.Source)):
        found |= {f"{name}_{each.name}": int(each) for each in kind}
    found |= {"DYN_NONE": 0, "DYN_SRC0": 1, "DYN_SRC1": 2, "DYN_DST": 3}
    layouts = {"HEADER": (0, HEADER), **{unit.name: (64, BODY[unit]) for unit in Unit},
               **{op.name: (64, CONTROL_BODY[op]) for op in COp}}
    for group, (first, layout) in layouts.items():
        edges = accumulate((bits for _, bits in layout), initial=first)
        for (name, bits), low in zip(layout, edges):
            found |= {f"FIELD_{group}_{name.upper()}_BIT": low, f"FIELD_{group}_{name.upper()}_BITS": bits}
    for kind in vars(operations).values():
        if isinstance(kind, type) and issubclass(kind, IntEnum) and kind.__name__.endswith("Flag"):
            group = kind.__name__.removesuffix("Flag").upper()
            found |= {f"FLAG_{group}_{flag.name}": 1 << flag for flag in kind}
    found |= {name.upper(): getattr(CONFIG, name) for name in (
        "dim", "bus_bytes", "spm_rows", "spm_banks", "acc_rows", "acc_banks", "stat_contexts", "stat_rows",
        "select_keys", "list_entries", "index_bits", "parameter_words", "address_bits")}
    return found | {f"DRAM_{name.upper()}": value for name, value in CONFIG.dram.model_dump().items()}


def printed(folder: Path, names: list[str]) -> dict[str, int]:
    """Values of the header's macros as a compiler sees them."""
    lines = "\n".join(f'    printf("{name} %lu\\n", (unsigned long)GEMMULE_{name});' for name in names)
    main = compiled(folder, CONFIG, f'#include <stdio.h>\n#include "gemmule.h"\nint main(void)\n{{\n{lines}\n'
                                    "    return 0;\n}\n")
    told = subprocess.run([main], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in told.splitlines())}


def test_every_constant_is_that_of_python(tmp_path: Path) -> None:
    wanted = expected()
    assert printed(tmp_path, list(wanted)) == wanted
    own = set(re.findall(r"^#define GEMMULE_(\w+) (?:0x)?[0-9a-f]+u", header_text(CONFIG), re.MULTILINE))
    assert own == set(wanted)


def test_every_flag_enumeration_and_offset_is_there(tmp_path: Path) -> None:
    """Registers that there are several of, and names by number."""
    source = """#include <stdio.h>
#include "gemmule.h"
int main(void)
{
    static const char *const counters[] = GEMMULE_COUNTER_NAMES, *const faults[] = GEMMULE_FAULT_NAMES;
    unsigned i;
    printf("%u %u %u\\n", GEMMULE_CSR_LENGTH(3u), GEMMULE_CSR_BASE(31u), GEMMULE_CSR_LIMIT(31u));
    for (i = 0; i < sizeof counters / sizeof *counters; i++)
        printf("%s %u\\n", counters[i], GEMMULE_CSR_COUNTER(i));
    for (i = 0; i < sizeof faults / sizeof *faults; i++)
        printf("%s %u\\n", faults[i], i);
    return 0;
}
"""
    told = subprocess.run([compiled(tmp_path, CONFIG, source)], capture_output=True, text=True, check=True).stdout
    assert told.split("\n")[:-1] == [
        f"{csr.length_offset(3)} {csr.base_offset(31)} {csr.limit_offset(31)}",
        *(f"{name} {csr.counter_offset(name)}" for name in COUNTERS),
        *(f"{name} {code}" for code, name in enumerate(FAULTS))]


def test_commands_built_in_c_are_those_of_the_encoder(tmp_path: Path) -> None:
    """Random commands, field by field with the driver's function and the header's places."""
    tiny = load_config("tiny")
    image = generate(tiny, 1, 60).image
    words = [int.from_bytes(image[i:i + 32], "little") for i in range(0, len(image), 32)]
    lines = []
    for word in words:
        command = decode(word)
        group = COp(command.op).name if command.unit == CONTROL else command.unit.name
        fields = {f"HEADER_WAIT_{unit.name}": distance for unit, distance in command.waits.items()} | {
            "HEADER_UNIT": int(command.unit), "HEADER_OP": command.op, "HEADER_DYN_WHICH": int(command.dyn[0]),
            "HEADER_FLAGS": sum(1 << flag for flag in command.flags),
            "HEADER_DYN_REG": command.dyn[1], "HEADER_DYN_STRIDE": command.dyn[2],
            "HEADER_PREDICATE": command.predicate,
            **{f"{group}_{name.upper()}": value for name, value in command.fields.items()}}
        assert encode(command) == word
        lines += [f"    put(GEMMULE_FIELD_{name}_BIT, GEMMULE_FIELD_{name}_BITS, {value}LL);"
                  for name, value in fields.items()]
        lines.append("    tell();")
    source = """#include <stdio.h>
#include "gemmule_driver.h"
static uint32_t command[8];
static void put(uint32_t bit, uint32_t bits, long long value)
{
    gemmule_put_field(command, bit, bits, (uint64_t)value);
}
static void tell(void)
{
    int i;
    for (i = 7; i >= 0; i--) {
        printf("%08lx", (unsigned long)command[i]);
        command[i] = 0;
    }
    printf("\\n");
}
int main(void)
{
""" + "\n".join(lines) + "\n    return 0;\n}\n"
    told = subprocess.run([compiled(tmp_path, tiny, source)], capture_output=True, text=True, check=True).stdout
    assert [int(line, 16) for line in told.splitlines()] == words


def test_an_identity_tells_hardware_apart_and_nothing_else() -> None:
    same = [CONFIG.model_copy(update=change) for change in (
        {"name": "mine"}, {"host": CONFIG.host.model_copy(update={"launch_cycles": 1})},
        {"dram": CONFIG.dram.model_copy(update={"latency": 99})})]
    assert {each.identity for each in same} == {CONFIG.identity}
    others = [CONFIG.model_copy(update=change) for change in (
        {"dim": 32}, {"spm_kib": 512}, {"unit_queue": 5}, {"address_bits": 40})]
    assert len({CONFIG.identity, *(each.identity for each in others)}) == 5
