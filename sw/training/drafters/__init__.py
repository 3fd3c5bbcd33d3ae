"""Drafters for a published target that stays frozen: one short run on a GPU, from prompts to weights.

``pack`` writes what the run needs as a few files; ``run`` needs only those, torch, numpy and safetensors; ``collect``
measures what came back on a CPU and writes the record and the page.
"""
