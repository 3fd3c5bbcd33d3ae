"""Formal verification: properties of the units, bounded checks, induction, and faults that must be found."""
