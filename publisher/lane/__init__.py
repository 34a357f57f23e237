"""One lane's life.

worker.py is its loop, lane.py its transactions, reader.py its rows; lane_admission.py parks the rows that Kafka would refuse.
"""
