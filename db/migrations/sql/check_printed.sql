-- The beginning of each printed transaction. NULL stands for the revision before the first one.
SET LOCAL search_path = pg_catalog;

DO $$
BEGIN
    IF (
{schema_is_ours}
    ) IS NOT TRUE THEN
        RAISE EXCEPTION 'there is no schema outbox in database %, or it or something in it belongs to another role than %: migrate as the owner',
            current_database(), current_user;
    END IF;
    IF {revision} IS NOT NULL THEN
        IF NOT EXISTS (SELECT FROM outbox.alembic_version WHERE version_num = {revision}) THEN
            RAISE EXCEPTION 'the outbox in database % is not at revision %, from which this transaction upgrades', current_database(), {revision};
        END IF;
    END IF;
END $$;
