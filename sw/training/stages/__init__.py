"""Stages of training, a file each: the target, its lessons, drafts, the encoder, the small pair."""
