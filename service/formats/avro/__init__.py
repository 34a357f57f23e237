"""Avro: parses schemas, decodes whole values, and steps over values field by field with a plan compiled from their schema."""
