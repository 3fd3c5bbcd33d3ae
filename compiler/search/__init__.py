"""Searches for the best program: mappings, rows and orders by the cycles of passes."""
