"""Threads, sections and projects that a client makes."""

from typing import Any

from protocol.log.filing import FiledProject
from tests.support.harness import WireClient

NOBODY = "01990000-0000-7000-8000-000000000000"


def project(name: str) -> FiledProject:
    """Return a project as it is stored."""
    return FiledProject(id=name, name=name, roots=[], metadata={}, created_at=1, updated_at=1)


async def threads_of(client: WireClient, count: int) -> list[str]:
    """Start threads with a turn each; return their ids."""
    made = []
    for number in range(count):
        made.append(await client.start_thread())
        await client.turn(made[-1], f"about {number}")
    return made


async def listed(client: WireClient, **params: Any) -> list[str]:
    """Return the ids of a list of threads."""
    result = await client.call("thread/list", params)
    return [thread["id"] for thread in result["data"]]
