"""``safeproducer replication``: what a move of replicas needs, and what limits the moves that run."""
