COMMENT ON COLUMN outbox.batch.open_state IS
    'what is open at end_offsets: {topic id: {partition: {"safe", "sessions", "events", "bytes", "digest", "tombstones", '
    '"upgraded"}}}. safe: offset of the oldest event of an open session; digest: of what is open, begins with its form; '
    'missing where it is not known, and any other form is as if missing; tombstones: base64, missing where there are none; '
    'upgraded: true from the upgrade to 0005 until the partition has records. A partition that is not named has nothing open. '
    'NULL: written before 0005, and not the newest of its generation';
