"""Threads, forks, signal handlers and the Python stack."""
