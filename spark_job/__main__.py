"""`python -m spark_job`."""

from spark_job.cli import main

main()
