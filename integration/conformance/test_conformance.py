"""The tests of tests/conformance, collected once more: here their clusters are Kafka 4.4.0."""

from integration import again

SUITE = "tests.conformance"

globals().update(again.collect_again(SUITE))


def test_the_whole_suite_is_here() -> None:
    """No module of the suite was lost on the way, and none is empty."""
    assert again.collected_modules(globals()) == set(again.test_modules(SUITE))
