"""Explain what ended an attempt: turn exceptions and Spark's text into an error that names the remedy."""
