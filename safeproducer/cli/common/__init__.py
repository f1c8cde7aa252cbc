"""Parts that the commands share: settings, connection, screen, stop, counts."""
