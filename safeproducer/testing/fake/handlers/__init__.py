"""Which APIs a broker serves, in which versions (never more than Kafka 4.3.1), and who answers them."""

from safeproducer.testing.fake.handlers.admin import create_topics, describe_configs
from safeproducer.testing.fake.handlers.cluster import describe_cluster, metadata
from safeproducer.testing.fake.handlers.coordinator import find_coordinator
from safeproducer.testing.fake.handlers.produce import produce
from safeproducer.testing.fake.handlers.producers import describe_producers, init_producer_id
from safeproducer.testing.fake.handlers.read import fetch, list_offsets
from safeproducer.testing.fake.handlers.request import Handler, Request
from safeproducer.testing.wire import Body, api_key

__all__ = ["SERVED", "Handler", "Request", "api_versions"]


def api_versions(request: Request) -> Body:
    """What is served, and nothing else."""
    keys = [{"api_key": api_key(api), "min_version": a, "max_version": b} for api, (a, b, _) in SERVED.items()]
    return {"error_code": request.error, "api_keys": sorted(keys, key=lambda entry: entry["api_key"])}


SERVED: dict[str, tuple[int, int, Handler]] = {
    "ApiVersions": (0, 4, api_versions),
    "CreateTopics": (2, 7, create_topics),
    "DescribeCluster": (0, 2, describe_cluster),
    "DescribeConfigs": (1, 4, describe_configs),
    "DescribeProducers": (0, 0, describe_producers),
    "Fetch": (4, 18, fetch),
    "FindCoordinator": (0, 6, find_coordinator),
    "InitProducerId": (0, 5, init_producer_id),
    "ListOffsets": (1, 11, list_offsets),
    "Metadata": (0, 13, metadata),
    "Produce": (3, 13, produce),
}
