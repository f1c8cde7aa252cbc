"""This package is about the interpreter: clock, chance, threads, forks, signal handlers, log. It knows no Kafka."""
