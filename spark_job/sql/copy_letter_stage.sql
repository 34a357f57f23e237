COPY pg_temp.letter_stage FROM STDIN (FORMAT BINARY)
