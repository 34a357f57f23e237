SELECT outbox.requeue(%(session_keys)s, %(batch_ids)s, %(lanes)s, %(lane_count)s, %(run_id)s)
