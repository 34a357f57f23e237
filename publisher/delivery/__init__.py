"""The exactly-once protocol. Lanes, replays and moves of `publisher resume` each do these steps in this order.

`open`, and again after any exception, because the outcome of the last transaction is then unknown:

1. acquire: the lease in Postgres, for liveness only;
2. fence: `init_transactions` fences any older holder and ends its open transaction. Only then is the position in Kafka final;
3. read progress: the newest record, which the last committed transaction carried;
4. check history: Postgres must agree (protocol/history_check.py). If a crash between the two commits left a delivery unrecorded, record
   it.

`run_once`, until the first exception:

5. send: the admitted rows, and the progress record last, in one Kafka transaction. The first transaction is committed only if its progress
   record stands where the progress partition ended in step 3, or if only records of other replays lie in between;
6. record: delivery and mirror in Postgres, always before the next transaction begins.

The modules:

- sender.py: steps 2 and 5, which are the same for all three. transaction.py: the Kafka transaction.
- admission.py: decides which rows are sent. excluded_rows.py: holds those that are not. refusal_bisection.py: finds the row that Kafka
  refuses.
- transaction_size.py, large_row_turns.py: how much a transaction carries, also after a failure; turns for rows larger than that.
- handover.py: lanes take turns in handing rows to the client.
- context.py, outbox_connection.py: what all deliveries of a process share; a checked connection to Postgres.
"""
