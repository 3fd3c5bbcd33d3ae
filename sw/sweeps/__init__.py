"""Design spaces: every configuration with every workload."""
