"""An encoder's operators, mapping and lowering: layers cut into phases, between which rows stand in DRAM."""
