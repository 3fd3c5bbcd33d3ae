"""Errors of the model and of co-simulation that a user can mend."""

__all__ = ["SimulationError"]


class SimulationError(RuntimeError):
    """A program, build or simulator problem; the message is one line with value, rule and fix."""
