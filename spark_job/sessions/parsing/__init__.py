"""From Kafka's records to columns: the fields of every event, and which records cannot be read.

`records` is where it begins: it checks keys, types and times, and writes the letters of what is malformed. It asks `formats`, which has
one reader for each `[source] format`:

    json            json_documents    blocks of documents through Arrow's JSON reader
    json-schema     formats           the same, behind the head
    avro            avro              by a plan of the schema (service/formats/avro); avro_columns takes all records through it at once
    protobuf        protobuf          message by message through Google's library
    bytes           formats           nothing is read

`fields` says what a reader is asked for and gives; `boundary` makes a verdict of whatever a reader raises. `heads` reads the schema ids in
front of values, or in a header; `column_bytes` and `times` are what several of them use.
"""
