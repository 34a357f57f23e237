"""The exactly-once protocol. A lane, a replay and a move of `publisher resume` each write its steps out in this order.

`open`, and again after any exception, because the outcome is unknown then:

1. acquire: the lease in Postgres, for liveness only;
2. fence: `init_transactions` ends any older holder and its open transaction. Only then is the position in Kafka final;
3. read progress: the newest record, which the last committed transaction carried;
4. check history: Postgres must agree (protocol/history_check.py). A delivery that a crash
   between the two commits left unrecorded is recorded.

`run_once`, until the first exception:

5. send: rows that are admitted, and the progress record last, in one Kafka transaction; the first one is committed only where its progress
   record follows the end that step 3 read;
6. record: delivery and mirror in Postgres, always before the next transaction begins.

Steps 2 and 5 are the same for all of them: sender.py. Which rows are admitted: admission.py.
"""
