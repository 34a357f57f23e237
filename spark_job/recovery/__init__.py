"""Where a start goes on: findings, generations, runs, savepoints, ownership."""
