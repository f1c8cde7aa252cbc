"""What `scripts/bench spark` runs in a session of Spark: the driver's script, and confluent_kafka by both doors."""
