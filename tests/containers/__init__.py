"""Postgres and Kafka as containers, in place of devstack's servers, and the part of the suite that CI runs on them."""
