"""The blocks joined: units, core, registers, the whole device."""
