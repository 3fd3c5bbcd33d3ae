"""The matrix unit: mesh, weight preload, activation stream, drain."""
