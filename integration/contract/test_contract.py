"""The tests of tests/contract that reach a cluster, collected once more: here the fixture `cluster` is real Kafka."""

from integration import again

CONTRACT = "tests.contract"
REACHING = {"cluster", "producer", "topic"}
"""Fixtures that lead to the cluster, besides those of a module that ask for them; with `make` alone it is nowhere."""
OWN_CLUSTER = {"test_order_of_a_topic"}
NO_BROKER = (
    "test_attribute_of_any_name",
    "test_method_of_any_name",
    "test_any_callable_is_called",
    "test_bad_call_raises",
    "test_callback_that_cannot_be_called",
    "test_exceptions_that_end_programs",
    "test_poll_with_nothing_to_serve",
    "test_timeout_may_be_any_real_number",
)
"""Of these the class alone decides, whatever cluster there is."""

globals().update(
    {name: one for name, one in again.collect_again(CONTRACT, REACHING).items() if not name.startswith(NO_BROKER)}
)


def test_the_whole_contract_is_here() -> None:
    """No module of the contract was lost on the way, and none is empty."""
    assert again.collected_modules(globals()) == set(again.test_modules(CONTRACT)) - OWN_CLUSTER
