"""The suite of tests/conformance, run on real Kafka."""
