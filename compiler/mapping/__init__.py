"""Choosing among mappings: their spaces, what they cost, and ways to search."""
