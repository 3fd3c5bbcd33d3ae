"""Heads on a frozen target's last row: those of a bundled pair, and SmolLM2's."""
