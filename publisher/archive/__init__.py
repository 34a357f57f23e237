"""The archive: rows that retention drops are written as Parquet first, and can be audited, sent again, queried and erased there.

Files, below `[retention] archive`, which is a folder (folder.py) or a bucket (bucket.py):

    outbox=<uuid>/day=YYYY-MM-DD/session_output_p<number>-<file>-<random>.parquet   rows of batches committed on that day
    outbox=<uuid>/_manifests/session_output_p<number>-<digest>.json                 what one partition's files are
    outbox=<uuid>/_manifests/owner.json                                             which database writes (owner.py)
    outbox=<uuid>/_writing/...                                                      what is not whole yet, or what a failure has left

State: `outbox.archived` has a row for each partition that is in the archive and no longer in Postgres, with the SHA-256 of its manifest;
the manifest has the SHA-256 of each file. A manifest that no row names does not count, and a file that no such manifest names is garbage:
whatever reads the archive begins at the row, and parses nothing whose digest differs.

Archiving, in one transaction of Postgres (writing.py):

1. hold the partition: nobody changes its rows until the transaction ends, and the database counts them;
2. remove the files that an earlier attempt left;
3. write each day's files whole and durable, and compare them with what Postgres gave by reading them back;
4. write the manifest in the same way;
5. insert the row, drop the partition, commit;
6. name the partition in the owner's file.

Before 2 and 5 the owner's file is read: a copy of the database may have begun to write.

A kill before the commit leaves garbage and the partition, and the next run begins again; a kill after it leaves a complete archive.

Erasing (rewriting.py) writes files and a manifest without the key, replaces the digest in the row, and removes the old files after the
commit. It reads Postgres first and the archive second: rows only move in that direction.
"""
