"""``safeproducer run``: starts an application whose producers are replaced."""
