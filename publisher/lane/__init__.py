"""Delivers one lane.

worker.py runs the loop, lane.py the steps of the protocol. reader.py reads the rows; lane_admission.py parks those that Kafka would refuse.
"""
