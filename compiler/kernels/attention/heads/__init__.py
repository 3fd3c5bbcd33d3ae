"""Heads that leave an encoder: which are there, importance, products of those that are left."""
