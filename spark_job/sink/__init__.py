"""One Postgres transaction for each batch: commit.py has its steps, commit_thread.py runs them beside the next batch."""
