SELECT to_regnamespace('outbox') IS NOT NULL
