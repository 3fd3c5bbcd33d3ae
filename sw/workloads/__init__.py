"""Workloads beside decoding: passes of networks, known shapes, products, what fits a device."""
