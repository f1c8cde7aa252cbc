"""The parts of `scripts/bench spark` in a session of Spark: the driver's script, and confluent_kafka by both doors."""
