"""Schemas by id: a registry's answers, a value's reference to its schema, and whole values decoded for people and transforms."""
