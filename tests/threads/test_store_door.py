"""The doors of stores: what the rest of the server sees of them could be kept by any database."""

import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from app_server.threads.checks import StoreChecks
from app_server.threads.environments import AddedEnvironments
from app_server.threads.files.environments import FileEnvironments
from app_server.threads.files.history.history import FileHistory, FileHistoryReader
from app_server.threads.files.index.listing import Listing
from app_server.threads.files.ledger import Ledger
from app_server.threads.files.operations import FileOperationLedger, FileOperations
from app_server.threads.files.repair import FileChecks
from app_server.threads.files.servers import FileServers
from app_server.threads.files.signals import FileSignals
from app_server.threads.files.store import FileOrganization, FileStore
from app_server.threads.files.writers import FileWriter
from app_server.threads.history.pages import HistoryReader
from app_server.threads.ledger import SignalLedger, SignalStore
from app_server.threads.log.live import LiveThread, RecordWriter
from app_server.threads.opening.checks import store_checks
from app_server.threads.opening.servers import running_servers
from app_server.threads.opening.stores import open_stores
from app_server.threads.operations import OperationLedger, OperationStore
from app_server.threads.servers import RunningServers
from app_server.threads.store import Organization, ThreadHistory, ThreadLists, ThreadStore

BEHIND: dict[type[Any], type[Any]] = {
    ThreadStore: FileStore,
    ThreadLists: Listing,
    ThreadHistory: FileHistory,
    HistoryReader: FileHistoryReader,
    Organization: FileOrganization,
    RecordWriter: FileWriter,
    SignalStore: FileSignals,
    SignalLedger: Ledger,
    RunningServers: FileServers,
    StoreChecks: FileChecks,
    AddedEnvironments: FileEnvironments,
    OperationStore: FileOperations,
    OperationLedger: FileOperationLedger,
}
"""What keeps files behind each door."""
DOORS = (*BEHIND, LiveThread)
MAX_METHODS = 15
LOCAL = ("Path", "sqlite3", "Lock", "ThreadIndex", "LogWriter", "LogPaths")
"""What only a store in files has."""
COUNTED = re.compile(r"(^|_)(bytes|length|offset)($|_)")
"""Names of what is counted in bytes of a file."""


def methods(door: type[Any]) -> dict[str, Any]:
    return {
        name: value.fget if isinstance(value, property) else value
        for name, value in vars(door).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }


@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_small(door: type[Any]) -> None:
    asked = [name for name in methods(door) if not isinstance(vars(door)[name], property)]
    assert 0 < len(asked) <= MAX_METHODS, sorted(asked)


@pytest.mark.parametrize("door", DOORS)
def test_a_door_has_no_files_in_its_types(door: type[Any]) -> None:
    found = {
        f"{name}({parameter}: {hint})"
        for name, method in methods(door).items()
        for parameter, hint in get_type_hints(method).items()
        if any(word in inspect.formatannotation(hint) for word in LOCAL)
        or COUNTED.search(parameter)
    }
    assert found == set()


@pytest.mark.parametrize("door", BEHIND)
def test_files_stand_behind_each_door(door: type[Any]) -> None:
    asked = [name for name in methods(door) if not isinstance(vars(door)[name], property)]
    assert [name for name in asked if not hasattr(BEHIND[door], name)] == []


async def test_stores_are_made_in_one_place(tmp_path: Path) -> None:
    stores = await open_stores(tmp_path)
    made = [stores.threads, stores.signals, stores.servers, stores.environments]
    made += [running_servers(tmp_path), store_checks(tmp_path)]
    assert [type(one) for one in made] == [
        FileStore,
        FileSignals,
        FileServers,
        FileEnvironments,
        FileServers,
        FileChecks,
    ]
