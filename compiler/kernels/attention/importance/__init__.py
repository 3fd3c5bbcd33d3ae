"""Attention that sums what positions are attended to: over layers, or over all rows of a text."""
