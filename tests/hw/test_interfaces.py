"""What blocks share: bits of flags, and layouts that follow from the instruction set."""

import pytest

from gemmule.config import load_config
from gemmule.hw.command.dispatch import UNIT_LAYOUTS
from gemmule.hw.interfaces import shared_bit
from gemmule.isa import AddFlag, NormFlag, ProductFlag, RequantFlag, SoftmaxFlag, Unit, field_bits


def test_a_shared_bit_is_one_bit():
    assert shared_bit(RequantFlag.WIDE, ProductFlag.WIDE, AddFlag.WIDE, NormFlag.WIDE, SoftmaxFlag.WIDE) == 2
    with pytest.raises(ValueError, match=r"flags must share one bit, not <RequantFlag.COLUMN: 0>, <NormFlag.WIDE: 2>"):
        shared_bit(RequantFlag.COLUMN, NormFlag.WIDE)
    with pytest.raises(ValueError, match="flags must share one bit, not none"):
        shared_bit()


@pytest.mark.parametrize("unit", Unit)
def test_a_field_that_a_unit_gets_has_the_width_of_the_instruction_set(unit: Unit):
    layout = UNIT_LAYOUTS[unit.label](load_config("tiny"))
    seen = {name: field.width for name, field in layout}
    for name, width in seen.items():
        if name in ("zero", "apart", "after", "address", "flags", "joined") or len(name) == 1 or name == "rows":
            continue  # resolved
        # of joined rows it is the bytes of all
        wanted = {"stride": 32, "first": field_bits(Unit.SELECT, "first") + field_bits(Unit.SELECT, "first_high")}
        assert width == wanted.get(name, 0) or width == field_bits(unit, name), name
    assert len(seen) > 8
