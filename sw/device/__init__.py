"""A device and the compiled models on it: passes, launches, and what they cost."""
