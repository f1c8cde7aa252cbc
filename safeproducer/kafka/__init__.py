import confluent_kafka  # noqa: F401 - first: under `safeproducer run` it imports the modules here itself
