"""The check of the database that threads are kept in, where they are not kept in files."""

import os
from collections.abc import Callable
from typing import TypeAlias

import anyio
import anyio.to_thread

from app_server.cli.checks.machine import Machine
from app_server.config.effective import ConfigSources, read_start_settings
from app_server.config.store_url import StoreUrl, chosen_store
from app_server.config.values import ConfigError
from app_server.runtime.loader import LoadFailed, load
from app_server.threads.checks import Check
from app_server.threads.opening.stores import NO_PSYCOPG

Look: TypeAlias = Callable[[StoreUrl], Check]


async def check_store(machine: Machine) -> Check:
    """Find the database that a server would use, and look at it as a server does."""
    check = Check("database")
    sources = ConfigSources(
        machine.home, machine.cwd, machine.requirements, machine.overrides, machine.profile
    )
    try:
        chosen = chosen_store(None, machine.overrides, os.environ)
        store = (await read_start_settings(sources, chosen)).store
    except ConfigError as exc:
        check.add("error", str(exc).strip())
        check.advise("correct that setting; no server starts before")
        return check
    if store is None:
        check.message = "threads are kept in files"
        return check
    try:
        look = await load(_look)
    except LoadFailed as exc:
        check.message = str(store)
        text, _, todo = NO_PSYCOPG.partition("; ")
        if not isinstance(exc.__cause__, ModuleNotFoundError):
            text, todo = str(exc), "install this version again"
        check.add("error", text)
        check.advise(todo)
        return check
    return await anyio.to_thread.run_sync(look, store)


def _look() -> Look:
    from app_server.threads.opening.database import look

    return look
