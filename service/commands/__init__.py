"""Shared by the command lines of both services: flags, output, and the question before a change.

- main.py: how a command line begins and ends. version.py: `--version`.
- options.py: the flags that several commands have. times.py, session_keys.py: values of flags.
- confirm.py: the question before a change.
- output.py: text and JSON. tables.py, progress.py: tables, and the progress bar.
- checks.py: runs checks of a server and shows their results.
- postgres_failures.py: explains a statement that Postgres refused.
"""
