"""Schemas by id: a registry's answers, a value's reference to its schema, and whole values decoded for people and transforms.

- wire.py: Confluent's wire format, which names a value's schema.
- registry/: the schemas of a registry. writer.py: one schema, and the errors of a registry. remembered.py: the cache of parsed schemas.
- values.py: decodes a whole value, in one of the formats.
- avro/, protobuf.py: Avro, Protobuf. proto_text.py, proto_builtin.py: schemas given as text, and the files that they may import.
- budget.py, proto_budget.py: bounds on a decoded value.
- faults.py: whether a failure is the value's or the machine's.
"""
