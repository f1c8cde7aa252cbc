"""The contract of tests/contract, run against real Kafka."""
