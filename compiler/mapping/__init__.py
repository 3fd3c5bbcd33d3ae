"""Choosing among mappings: their space is in passes/map, their cost is the simulator's."""
