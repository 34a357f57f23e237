#!/bin/bash
# Runs once, when Postgres makes its data directory: the roles, and a login for each service that may do its part and no more
# (db/README.md, Roles). The migration makes the tables, as outbox_owner.
set -euo pipefail
secrets=/run/outbox-secrets
for login in outbox_owner spark_job publisher auditor; do
    [[ -s $secrets/$login.password ]] || { echo "$secrets/$login.password is missing or empty" >&2; exit 1; }
done
# The passwords are read by psql itself, so that no process shows them among its arguments.
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\set outbox_owner `cat /run/outbox-secrets/outbox_owner.password`
\set spark_job `cat /run/outbox-secrets/spark_job.password`
\set publisher `cat /run/outbox-secrets/publisher.password`
\set auditor `cat /run/outbox-secrets/auditor.password`
BEGIN;
CREATE ROLE outbox_writer NOLOGIN;
CREATE ROLE outbox_publisher NOLOGIN;
CREATE ROLE outbox_auditor NOLOGIN;
CREATE ROLE outbox_owner LOGIN PASSWORD :'outbox_owner';
CREATE ROLE spark_job LOGIN PASSWORD :'spark_job' IN ROLE outbox_writer;
CREATE ROLE publisher LOGIN PASSWORD :'publisher' IN ROLE outbox_publisher;
CREATE ROLE auditor LOGIN PASSWORD :'auditor' IN ROLE outbox_auditor;
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT, CREATE ON DATABASE :"DBNAME" TO outbox_owner;
GRANT CONNECT ON DATABASE :"DBNAME" TO outbox_writer, outbox_publisher, outbox_auditor;
-- Dead letters are staged in a temporary table.
GRANT TEMPORARY ON DATABASE :"DBNAME" TO outbox_writer;
COMMIT;
SQL
