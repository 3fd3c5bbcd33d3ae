"""The device in Amaranth: one component a file."""
