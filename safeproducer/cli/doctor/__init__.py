"""``safeproducer doctor``: what the producer IDs of a cluster look like, and where they come from."""
