"""From produce() to a lane: records wait, and leave when nothing holds them."""
