"""Where a start continues: findings, generations, runs, savepoints, ownership."""
