"""Statements of a Verilator simulator that run only in cycles in which something that they read has changed."""
