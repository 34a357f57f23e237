"""Turn Kafka's records into columns: the fields of every event, and which records cannot be read.

`clock_records` comes first: it takes the clock records out. `records` checks keys, types and times of the others, and makes the letters of
malformed ones. It calls `formats`, which has one reader for each `[source] format`:

    json            json_documents    blocks of documents through Arrow's JSON reader
    json-schema     formats           the same, behind the head
    avro            avro              by a plan of the schema (service/formats/avro); avro_columns reads all records together
    protobuf        protobuf          message by message through Google's library
    bytes           formats           nothing is read

`fields` defines a reader's arguments and result; `boundary` turns whatever a reader raises into a verdict. `schema_id_heads` reads the
schema ids in front of values or in headers; several readers use `column_bytes` and `times`.
"""
