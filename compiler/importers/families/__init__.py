"""Families of published networks, a file each."""
