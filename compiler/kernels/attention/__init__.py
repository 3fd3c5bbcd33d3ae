"""Attention: a file a kind, and what all kinds share."""
