"""Refinement of a placement: look-up tables, flip-flops and blocks on slow paths move to better sites."""
