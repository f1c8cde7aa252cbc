"""Applications as people write them, each run with confluent_kafka.Producer and with SafeProducer: the same outcome."""
