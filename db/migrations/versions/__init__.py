"""One module for each revision, run by alembic."""
