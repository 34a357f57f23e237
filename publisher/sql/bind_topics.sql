-- Ids that are already recorded win over the new ones.
UPDATE outbox.identity
SET output_topic_ids = %(topic_ids)s || output_topic_ids
RETURNING output_topic_ids
