"""Formal verification: what is proved of the units, by bounded checks and by induction, and the faults that must be found."""
