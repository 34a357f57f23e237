"""The input: Kafka topics, offsets, and a record as the columns that the assembler reads."""
