"""Errors of the compiler that a user can mend."""

__all__ = ["AccumulatorError", "CheckError", "CompileError"]


class CompileError(ValueError):
    """A model or shape that does not fit; the message is one line with value, rule and fix."""


class AccumulatorError(CompileError):
    """Sums that do not fit the accumulator, whatever stands in the scratchpad."""


class CheckError(CompileError):
    """What must hold after a pass does not: the compiler is wrong, and no other mapping helps."""
