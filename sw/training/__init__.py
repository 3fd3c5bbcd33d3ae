"""Training of the bundled models: corpus, recipe, networks, numbers (few files need torch: `model` and what trains)."""
