"""Decoding methods: one loop, one drafter protocol, exact verification."""
