"""Moves lanes on request, if the histories of Kafka and Postgres differ.

- survey.py: reads the facts. decision.py: decides where a lane continues, and what that repeats or skips.
- planner.py: the plan for all lanes, which a person confirms. Lanes that agree are left alone.
- resume.py: carries the plan out. lane_move.py: the move of one lane.
- rebinding.py: another server, cluster or topic that a person has accepted.
"""
