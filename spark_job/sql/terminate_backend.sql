SELECT pg_terminate_backend(%(pid)s::integer, 5000) WHERE %(pid)s::integer <> pg_backend_pid()
