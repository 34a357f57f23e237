DROP VIEW outbox.output_lineage;
