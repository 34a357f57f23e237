"""From one attempt of the job to the next: restarts inside the process, and a standby that waits for its turn."""
