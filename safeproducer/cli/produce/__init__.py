"""``safeproducer produce``: lines in, records out."""
