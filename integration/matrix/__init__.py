"""Programs that run in environments of other versions: they import the package, and nothing of the other tests."""
