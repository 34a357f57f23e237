"""The input: Kafka topics, offsets, and a record as the columns that the assembler reads.

- topics.py, offsets.py: ids, partitions and bounds of the topics; positions.
- columns.py: the columns of a record.
- source.py: Spark's Kafka source; how a batch's limit is divided among the partitions.
- reading.py: reads ranges of offsets without Spark.
- clock_records.py: writes clock records into quiet partitions.
- group_offsets.py: offsets for lag tools.
"""
