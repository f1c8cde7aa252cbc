"""From a report of librdkafka to the callback of the application, and the counts."""
