"""What the ledger knows: positions, generations and their assembly rules, runs, requests, and who may write."""
