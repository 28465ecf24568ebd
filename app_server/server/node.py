"""The server as a node of a group: its id, its secret, and what lets others of the group in.

Source: docs/scale.md, "How nodes reach one another".
"""

import logging
import time
from collections.abc import Sequence

import anyio.to_thread

from app_server.config.node import ADDRESS_KEY, SECRET_KEY, GroupSettings
from app_server.config.values import ConfigError
from app_server.fleet.routing import Group
from app_server.handlers.services import Services
from app_server.peer.node import NodeAddress, NodeUnreachable
from app_server.threads.nodes import Owner, ThreadOwners
from app_server.threads.servers import EVERY_ADDRESS
from app_server.transport.guards import read_shared_secret
from app_server.transport.node_tokens import NodeTokens
from app_server.transport.websocket import NODE_SUBPROTOCOL

logger = logging.getLogger(__name__)


class GroupNode:
    """A node of a group; it has an id once its store is open."""

    def __init__(self, secret: bytes, address: str | None) -> None:
        """`address` is the one of the settings; None: they have none."""
        self._address = address
        self.tokens = NodeTokens(secret, self)
        self.owners: ThreadOwners | None = None
        """None until the store is open."""

    def announced(self, urls: Sequence[str]) -> str | None:
        """Return where others reach this node, which listens at these addresses; None: nowhere.

        Raises:
            ConfigError: it listens on all addresses of its machine, and the settings name none.
        """
        if self._address is not None:
            return self._address
        reached = [url for url in urls if url.startswith("ws://")]
        if not reached:
            logger.warning(
                "the other nodes do not reach this one, and so not its threads: it listens at no "
                "ws:// address, and %s is not set",
                ADDRESS_KEY,
            )
            return None
        for url in reached:
            if not url.startswith(tuple(EVERY_ADDRESS)):
                return url
        raise ConfigError(
            f"{ADDRESS_KEY}: must be set where a node listens at {reached[0]}, which is no address "
            "for others"
        )

    @property
    def id(self) -> str | None:
        """Id of this node; see Node."""
        return None if self.owners is None else self.owners.own_id

    def now_s(self) -> float:
        """Return seconds that all nodes count alike; see Node."""
        return time.time() if self.owners is None else self.owners.now_s()

    def address_of(self, owner: Owner) -> NodeAddress:
        """Return the address of another node for one connection.

        Raises:
            NodeUnreachable: it has none.
        """
        if owner.address is None:
            raise NodeUnreachable("it has no address", is_final=True)
        return NodeAddress(owner.address, self.tokens.issue(owner.node_id), NODE_SUBPROTOCOL)


async def open_node(settings: GroupSettings) -> GroupNode:
    """Read the secret of a group.

    Raises:
        ConfigError: its file cannot be read, or holds none.
    """
    file = settings.secret_file
    try:
        secret = await anyio.to_thread.run_sync(read_shared_secret, file)
    except OSError as exc:
        raise ConfigError(f"{SECRET_KEY}: {file} cannot be read: {exc.strerror}") from None
    except ValueError as exc:
        raise ConfigError(f"{SECRET_KEY}: {file}: {exc}") from None
    return GroupNode(secret, settings.address)


def group_of(node: GroupNode, services: Services) -> Group:
    """Return what routes of clients need of a group; the node's store is open."""
    assert node.owners is not None
    return Group(
        owners=node.owners,
        hub=services.hub,
        is_loaded=lambda thread_id: services.sessions.find(thread_id) is not None,
        address_of=node.address_of,
    )
