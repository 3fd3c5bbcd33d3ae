"""Decoding methods compared, with the speed-ups that theory predicts."""
