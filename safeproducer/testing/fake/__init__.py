"""The parts of FakeCluster: what a Kafka 4.4 broker keeps and answers, with the broker half of KIP-1269."""
