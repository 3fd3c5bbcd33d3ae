"""Mutants of the RTL against all that the model and the contract of the registers say."""
