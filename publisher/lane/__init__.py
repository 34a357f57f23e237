"""One lane's life: worker.py is its loop, lane.py its transactions, reader.py its rows, parking.py the rows that Kafka would refuse."""
