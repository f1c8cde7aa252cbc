"""What a test may do to a cluster and see of it, by subject; FakeCluster is all of them together."""
