"""The waits that the tests make longer are those of the server."""

import importlib

from tests.support.pytest_plugins.patience import WAITS, wait_in


def test_every_wait_that_tests_make_longer_is_there() -> None:
    for module, names in WAITS.items():
        for name in names:
            waits, setting = wait_in(importlib.import_module(module), name)
            assert isinstance(waits[setting], int | float)
