#!/bin/bash
# At each `docker compose up`, before the migration: the database, the roles, and a login for each service that may do its part and no more
# (db/README.md, Roles). What is there is left; every password becomes the one in the login's file, so new files are new passwords.
#
# Not in the image's initdb folder, which is run at most once: a first start that was cut off would leave a Postgres without logins for ever.
set -euo pipefail
secrets=/run/outbox-secrets
for login in postgres outbox_owner spark_job publisher auditor retention; do
    [[ -s $secrets/$login.password ]] || { echo "$secrets/$login.password is missing or empty" >&2; exit 1; }
done
# The passwords are read by psql itself, so that no process shows them among its arguments.
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --host /var/run/postgresql --username postgres --dbname postgres <<'SQL'
\set postgres `cat /run/outbox-secrets/postgres.password`
\set outbox_owner `cat /run/outbox-secrets/outbox_owner.password`
\set spark_job `cat /run/outbox-secrets/spark_job.password`
\set publisher `cat /run/outbox-secrets/publisher.password`
\set auditor `cat /run/outbox-secrets/auditor.password`
\set retention `cat /run/outbox-secrets/retention.password`
-- A statement that fails, for instance while the disk is full, would be in the server's log with its password.
SET log_statement = none;
SET log_min_error_statement = panic;
SET log_min_duration_statement = -1;
-- "is already a member", at each start but the first.
SET client_min_messages = warning;
SELECT 'CREATE DATABASE outbox' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'outbox') \gexec
BEGIN;
SELECT format('CREATE ROLE %I', name)
FROM unnest(ARRAY['outbox_writer', 'outbox_publisher', 'outbox_auditor', 'outbox_retention', 'outbox_eraser', 'outbox_owner', 'spark_job', 'publisher', 'auditor',
    'retention']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
ALTER ROLE postgres PASSWORD :'postgres';
ALTER ROLE outbox_owner LOGIN PASSWORD :'outbox_owner';
ALTER ROLE spark_job LOGIN PASSWORD :'spark_job';
ALTER ROLE publisher LOGIN PASSWORD :'publisher';
ALTER ROLE auditor LOGIN PASSWORD :'auditor';
ALTER ROLE retention LOGIN PASSWORD :'retention';
GRANT outbox_writer TO spark_job;
GRANT outbox_publisher TO publisher;
GRANT outbox_auditor TO auditor;
GRANT outbox_retention TO retention;
REVOKE ALL ON DATABASE outbox FROM PUBLIC;
GRANT CONNECT, CREATE ON DATABASE outbox TO outbox_owner;
GRANT CONNECT ON DATABASE outbox TO outbox_writer, outbox_publisher, outbox_auditor, outbox_retention, outbox_eraser;
-- Dead letters are staged in a temporary table.
GRANT TEMPORARY ON DATABASE outbox TO outbox_writer;
COMMIT;
SQL
