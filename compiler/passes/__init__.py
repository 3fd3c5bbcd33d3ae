"""Passes from a quantised graph to a program: fuse, map, lower, roll and schedule, allocate, emit; then verify."""
