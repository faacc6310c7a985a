"""One tree of errors with one root, and no secrets in them."""

from __future__ import annotations

import inspect

import pytest

import taskharbor
from taskharbor.core import errors
from taskharbor.core.errors import TaskHarborError

CLASSES = [thing for _, thing in inspect.getmembers(errors, inspect.isclass) if thing.__module__ == errors.__name__]


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_has_the_one_root_and_says_what_it_means(error: type[Exception]) -> None:
    assert issubclass(error, TaskHarborError)
    assert error.__doc__


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_can_be_imported_from_the_package(error: type[Exception]) -> None:
    assert getattr(taskharbor, error.__name__) is error
    assert error.__name__ in taskharbor.__all__


@pytest.mark.parametrize(
    ("error", "parent"),
    [
        ("JobNotFound", "JobNotInflight"),
        ("LeaseMismatch", "LeaseLost"),
        ("LeaseExpired", "LeaseLost"),
        ("InvalidLeaseDuration", "InvalidInput"),
        ("PayloadTooLarge", "InvalidInput"),
        ("DuplicateJob", "IdempotencyConflict"),
        ("DriverClosed", "StoreError"),
    ],
)
def test_a_caller_can_catch_the_broader_class(error: str, parent: str) -> None:
    assert issubclass(getattr(errors, error), getattr(errors, parent))


def test_a_lost_lease_is_not_mistaken_for_a_job_that_is_gone() -> None:
    assert not issubclass(errors.LeaseLost, errors.JobNotInflight)
    assert not issubclass(errors.JobNotInflight, errors.LeaseLost)


def test_bad_input_is_also_a_value_error_and_a_missing_extra_an_import_error() -> None:
    assert issubclass(errors.InvalidInput, ValueError)
    assert issubclass(errors.MissingExtra, ImportError)


def test_a_conflict_names_the_job_that_holds_the_key() -> None:
    assert errors.IdempotencyConflict("taken", existing_id="j1").existing_id == "j1"


def test_everything_that_the_package_exports_exists() -> None:
    assert all(hasattr(taskharbor, name) for name in taskharbor.__all__)
    assert len(set(taskharbor.__all__)) == len(taskharbor.__all__)
