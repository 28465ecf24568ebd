"""Restore the loggers after each test: commands that a test runs in this process set them up."""

import logging
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Give the next test the levels and handlers that this one found."""
    loggers = (logging.getLogger(), logging.getLogger("app_server"))
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    try:
        return (yield)
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            for handler in [one for one in logger.handlers if one not in handlers]:
                logger.removeHandler(handler)
                handler.close()
