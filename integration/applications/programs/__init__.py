"""The applications. Each is a program of its own, which takes the producer's class from its environment."""
