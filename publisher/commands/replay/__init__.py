"""`publisher replay`: the commands in cli.py, options, and the two ways out of a start: Kafka (work.py) and a file (file.py)."""
