"""The door of the store: what the rest of the server sees of it could be kept by any database."""

import inspect
from typing import Any, get_type_hints

import pytest

from app_server.threads.history.history import ThreadHistory
from app_server.threads.index.listing import Listing
from app_server.threads.organization import Organization
from app_server.threads.store import ThreadStore

DOORS = (ThreadStore, ThreadHistory, Listing, Organization)
MAX_METHODS = 15
LOCAL = ("Path", "sqlite3", "Lock", "ThreadIndex", "LogWriter", "LogPaths")
"""What only a store in files has."""


def methods(door: type[Any]) -> dict[str, Any]:
    return {
        name: value.fget if isinstance(value, property) else value
        for name, value in vars(door).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }


@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_small(door: type[Any]) -> None:
    assert 0 < len(methods(door)) <= MAX_METHODS, sorted(methods(door))


@pytest.mark.parametrize("door", DOORS)
def test_a_door_has_no_files_in_its_types(door: type[Any]) -> None:
    found = {
        f"{name}({parameter}: {hint})"
        for name, method in methods(door).items()
        for parameter, hint in get_type_hints(method).items()
        if any(word in inspect.formatannotation(hint) for word in LOCAL)
    }
    assert found == set()
