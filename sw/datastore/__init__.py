"""Texts to draft from: tokenised once, with a suffix array, and kept in the cache."""
