"""The mapping of a product: its space, formula, bound and search."""
