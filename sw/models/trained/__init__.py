"""Drafters that were trained on a target's hidden rows: read, as float networks, calibrated, and in integers."""
