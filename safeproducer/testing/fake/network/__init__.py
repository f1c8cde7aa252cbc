"""Listeners and connections: bytes in, answers out in order, late where that was ordered."""
