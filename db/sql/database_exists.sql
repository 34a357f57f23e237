SELECT EXISTS (SELECT FROM pg_catalog.pg_database d WHERE d.datname = %(database)s)
