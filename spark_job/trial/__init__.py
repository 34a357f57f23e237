"""`spark-job try`: run the current transform on the newest sessions of the input. Nothing is written anywhere."""
