"""Examples of hypothesis have no deadline: the machine may be busy."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Say so where tests run; the process that hands them out needs no hypothesis."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import hypothesis

    hypothesis.settings.register_profile("tests", deadline=None)
    hypothesis.settings.load_profile("tests")
