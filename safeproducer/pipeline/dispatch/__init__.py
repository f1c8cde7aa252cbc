"""From produce() to a lane: records wait, and leave when admission says go."""
