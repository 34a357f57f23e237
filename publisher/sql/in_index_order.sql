-- The planner does not know how far the rows reach (the bound is the ledger's own end), takes them for few, and sorts: then each chunk reads
-- all that a lane has left, the wide columns too. In the index's order it reads a chunk.
SET LOCAL enable_sort = off
