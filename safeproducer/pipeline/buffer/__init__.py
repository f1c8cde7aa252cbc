"""The records of a partition that wait, and its batches that are in flight."""
