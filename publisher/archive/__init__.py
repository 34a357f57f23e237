"""The archive: retention writes rows as Parquet before it drops them. They can be audited, sent again, queried and erased there.

Files, below `[retention] archive`, which is a folder (folder.py) or a bucket (bucket.py):

    outbox=<uuid>/day=YYYY-MM-DD/session_output_p<number>-<file>-<random>.parquet   rows of batches committed on that day
    outbox=<uuid>/_manifests/session_output_p<number>-<digest>.json                 lists the files of one partition
    outbox=<uuid>/_manifests/owner.json                                             which database writes (owner.py)
    outbox=<uuid>/_writing/...                                                      files that are not complete, or that a failure has left

State: `outbox.archived` has a row for each partition that is in the archive and no longer in Postgres, with the SHA-256 of its manifest;
the manifest has the SHA-256 of each file. A manifest that no row names does not count. A file that no valid manifest names is garbage.
Every reader of the archive begins at the row, and parses nothing whose digest differs.

Archiving (writing.py), 1 to 5 in one transaction of Postgres:

1. lock the partition and count its rows: nobody can change them until the transaction ends;
2. remove the files that an earlier attempt left;
3. write each day's files completely and durably, and read them back to compare them with the rows that Postgres returned
   (verification.py);
4. write the manifest in the same way;
5. insert the row, drop the partition, commit;
6. write the partition's archive id into the owner's file.

The owner's file is read before steps 2, 5 and 6, because a copy of the database may have begun to write.

After a kill before the commit, garbage and the partition remain, and the next run begins again. After a kill after the commit, the archive
is complete.

Erasing (rewriting.py) writes files and a manifest without the key, replaces the digest in the row, and removes the old files after the
commit. An erasure reads Postgres first and the archive second, because rows only move in that direction.
"""
