"""Decisions, and nothing else: no confluent_kafka, no thread, no clock, no randomness, no I/O. `now` is an argument."""
