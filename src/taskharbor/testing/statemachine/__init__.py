"""A Hypothesis state machine that runs a driver beside the memory driver and compares everything they say.

    from taskharbor.testing.statemachine import compare_with_memory

    def test_my_driver_behaves_like_the_reference():
        compare_with_memory(lambda: my_driver_on_an_empty_store())

Needs Hypothesis: pip install hypothesis.
"""

from taskharbor.core.errors import MissingExtra

try:
    from taskharbor.testing.statemachine.machine import DriverComparison, compare_with_memory
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "hypothesis":
        raise
    raise MissingExtra(
        "the state machine needs Hypothesis: pip install 'taskharbor[dev]', or hypothesis alone"
    ) from None

__all__ = ["DriverComparison", "compare_with_memory"]
