SET LOCAL statement_timeout = '5s'
