"""The vector unit: lanes, row statistics, tables."""
