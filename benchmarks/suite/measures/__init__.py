"""The measurements, one module each: what a round of it is."""
