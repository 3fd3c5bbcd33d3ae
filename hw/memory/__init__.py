"""Scratchpad and accumulator."""
