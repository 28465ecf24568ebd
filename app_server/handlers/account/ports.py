"""What the methods of the account need; their own module is imported when one is called."""

from dataclasses import dataclass

import anyio.abc

from app_server.accounts.accounts import Accounts
from app_server.config.effective import Configuration
from app_server.rpc.hub import Hub


@dataclass(frozen=True, slots=True)
class AccountPorts:
    """What AccountHandlers is made with."""

    configuration: Configuration
    accounts: Accounts
    clients: Hub
    tasks: anyio.abc.TaskGroup
    """Where sign-ins wait for their users."""
