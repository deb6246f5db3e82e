"""The audit trail: notes of operations, the buffer that is written in batches, and the search."""
