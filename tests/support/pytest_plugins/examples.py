"""Examples of hypothesis have no deadline: the machine may be busy.

Some begin with constants of the server's sources, which are read once for all processes of a run.
"""

import sys
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Say so where tests run; the process that hands them out needs no hypothesis."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import hypothesis

    hypothesis.settings.register_profile("tests", deadline=None)
    hypothesis.settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Let each process begin with sources of its own, and find what is in the others written down.

    hypothesis parses all of them before the first test, and keeps the constants in `.hypothesis`.
    """
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        return
    from hypothesis.internal.constants_ast import constants_from_module, is_local_module_file

    modules = [
        module
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None)) and is_local_module_file(file)
    ]
    number = int(worker["workerid"].removeprefix("gw"))
    first = len(modules) * number // int(worker["workercount"])
    for module in modules[first:] + modules[:first]:
        constants_from_module(module)
