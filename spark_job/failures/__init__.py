"""What ended an attempt, in words: from exceptions and Spark's text to an error that names what mends it."""
