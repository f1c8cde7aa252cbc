"""The settings: forms of configuration, those that begin with safeproducer., and what the buffered path acts by."""
