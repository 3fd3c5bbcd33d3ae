"""Standard cells: what a unit or the device takes in a process of 130 or 180 nm, before layout."""
