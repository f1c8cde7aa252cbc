"""Knowledge of brokers, partitions, leaders, windows and throttle times, and how it is asked for."""
