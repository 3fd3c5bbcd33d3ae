"""Errors of the user that no other room has a name for; light to import."""

from __future__ import annotations

__all__ = ["InputError"]


class InputError(ValueError):
    """Wrong input from the user; the message names value, rule and fix."""
