"""Restore the loggers after each test: commands that a test runs in this process set them up."""

import logging
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Give the next test the levels and handlers that this one found."""
    handled = (logging.getLogger(), logging.getLogger("app_server"))
    before = [(logger, list(logger.handlers)) for logger in handled]
    levels = {logger: logger.level for logger in _loggers()}
    try:
        return (yield)
    finally:
        for logger in _loggers():
            if logger.level != (level := levels.get(logger, logging.NOTSET)):
                logger.setLevel(level)
        for logger, handlers in before:
            for handler in [one for one in logger.handlers if one not in handlers]:
                logger.removeHandler(handler)
                handler.close()


def _loggers() -> list[logging.Logger]:
    named = logging.root.manager.loggerDict.values()
    return [logging.root, *(one for one in named if isinstance(one, logging.Logger))]
