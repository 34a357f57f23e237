"""Turn a closed session into its stored row.

- transform.py: loads the user's transform, and refuses another version than the run's.
- transform_failures.py: runs the transform on a session, and decides who is at fault if it raises.
- lacking.py: tells which errors are the machine's.
- settings.py: the settings that a task receives.
- encoding.py, schemas.py: check and encode outputs; outputs with a schema.
- trace_context.py: the end event's trace context.
- session_row.py, pgcopy.py: the row, in COPY's binary format.
"""
