"""`spark-job try`: the newest sessions of the input through the present transform. Nothing is written anywhere."""
