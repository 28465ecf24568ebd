"""What the bridge of a receiver logs, in its order."""

from app_server.clients.receiver.failpoints import Step

BRIDGE_STEPS: list[Step] = ["received", "taken", "acked", "begun", "sent", "answered", "recorded"]
