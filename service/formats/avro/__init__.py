"""Avro: parses schemas, decodes whole values, and reads single fields of a value: a plan, compiled from its schema, says which fields to
skip and which to keep."""
