"""Signals of a client, and their delivery."""

from typing import Any

from tests.support.harness import (
    WireClient,
)


def signal(signal_id: str = "s1", **members: Any) -> dict[str, Any]:
    """Make a signal as a sender would."""
    return {
        "id": signal_id,
        "source": "router",
        "type": "Question",
        "sender": "ann",
        "summary": f"summary of {signal_id}",
        **members,
    }


async def deliver(
    client: WireClient, thread_id: str, signal_id: str = "s1", mode: str = "passive", **more: Any
) -> Any:
    """Deliver a signal to a thread and return the receipt."""
    params = {
        "signal": signal(signal_id, **more.pop("signal", {})),
        "target": {"threadId": thread_id},
        "mode": mode,
        **more,
    }
    return (await client.call("signal/deliver", params))["receipt"]
