"""The waits that the tests make longer are those of the server."""

import importlib

from tests.support.pytest_plugins.patience import WAITS


def test_every_wait_that_tests_make_longer_is_there() -> None:
    missing = [
        f"{module}.{name}"
        for module, names in WAITS.items()
        for name in names
        if not hasattr(importlib.import_module(module), name)
    ]
    assert missing == []
