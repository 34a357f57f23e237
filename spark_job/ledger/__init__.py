"""What the ledger knows: positions, generations and their assembly descriptions, runs, requests, and who may write."""
