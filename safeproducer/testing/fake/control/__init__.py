"""The methods by which tests change and read a cluster, by subject; FakeCluster is all of them together."""
