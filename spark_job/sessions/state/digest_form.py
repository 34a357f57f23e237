"""Which form digests of open sessions have. Imports nothing: commands that only show a position start without numpy and Arrow."""

DIGEST_FORM = "2-"
"""How each digest begins. What a release computes otherwise begins otherwise: the digests of another one are as if there were none."""
