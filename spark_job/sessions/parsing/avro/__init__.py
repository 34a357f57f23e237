"""Fields of Avro records, whole columns at a time: a plan for each schema, which all records of it follow together."""
