INSERT INTO outbox.lane (epoch, lane)
SELECT %(epoch)s, n FROM generate_series(0, %(lanes)s - 1) AS n
ON CONFLICT ON CONSTRAINT lane_pkey DO NOTHING
