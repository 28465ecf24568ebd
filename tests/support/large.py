"""Large values of tables of cases: made when they are tested.

Each process of a run imports every test, and keeps what stands in its tables until the end.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

Value = TypeVar("Value")
Case: TypeAlias = Value | Callable[[], Value]
"""A value, or for a large one what makes it."""


def made(case: Case[Value]) -> Value:
    """Return the value of a case; none is callable itself."""
    return case() if callable(case) else case
