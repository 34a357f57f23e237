SELECT to_regclass('outbox.operation') IS NOT NULL
