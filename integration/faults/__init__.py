"""Faults on real Kafka: a load, what breaks meanwhile, and an oracle that compares the reports with the log."""
