"""A Hypothesis state machine that runs a driver beside the memory driver and compares everything they say.

    from taskharbor.testing.statemachine import compare_with_memory

    def test_my_driver_behaves_like_the_reference():
        compare_with_memory(lambda: my_driver_on_an_empty_store())

Needs Hypothesis: pip install hypothesis.
"""

from taskharbor.testing.statemachine.machine import DriverComparison, compare_with_memory

__all__ = ["DriverComparison", "compare_with_memory"]
