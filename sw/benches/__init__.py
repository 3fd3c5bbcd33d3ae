"""Decoding methods measured side by side, beside what theory foretells."""
