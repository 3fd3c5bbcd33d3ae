"""Prompts that decoding is measured on: texts of held-out files by category, chosen by rules that know no results."""
