"""What the commands share: settings, connection, screen, stop, counts."""
