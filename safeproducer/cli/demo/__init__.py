"""``safeproducer demo``: what it sends, what goes wrong on purpose, and what is proved by it."""
