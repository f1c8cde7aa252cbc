"""Measures the costs of SafeProducer against the confluent_kafka producer in the same process at the same time."""
