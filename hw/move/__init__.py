"""Load and store: DRAM rows to and from rows of the on-chip memories."""
