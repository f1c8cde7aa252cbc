"""What all tests share."""

pytest_plugins = ["integration.tap.fixtures"]
