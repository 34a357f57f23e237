"""One Postgres transaction for each batch."""
