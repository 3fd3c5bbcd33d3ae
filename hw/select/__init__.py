"""The select unit: argmax, top-K, importance, index lists, predicates."""
