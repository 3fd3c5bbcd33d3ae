"""How many candidates a step drafts and verifies, by exact costs and learned acceptance."""
