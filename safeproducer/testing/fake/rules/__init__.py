"""A broker's decisions from its arguments alone: no thread, no socket, no time but what is passed in."""
