"""Schemas by id: what a registry gives, how a value names its schema, and whole values decoded for people and transforms."""
