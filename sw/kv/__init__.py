"""Caches of keys and values: one protocol, a file a kind."""
