"""`publisher replay`. cli.py: the commands; options.py: their options; start.py: sends to Kafka (work.py) or writes a file (file.py)."""
