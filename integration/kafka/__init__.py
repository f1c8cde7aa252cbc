"""Real Apache Kafka for tests: KRaft nodes started from Maven jars, each its own process."""
