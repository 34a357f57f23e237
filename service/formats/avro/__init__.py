"""Avro: schemas parsed, whole values, and values stepped over field by field by a plan made of their schema."""
