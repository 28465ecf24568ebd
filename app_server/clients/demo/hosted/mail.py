"""Mail: nothing is read before the user has signed in.

The page on which one signs in is not played. After a refusal, listing the tools again counts as
coming back from it: that is what happens when a user has accepted.
"""

from dataclasses import replace

from app_server.clients.demo.hosted.tool import (
    ENVELOPE,
    READS,
    Call,
    HostedConnector,
    JsonObject,
    text_result,
)

ACCOUNT_EMAIL = "demo@example.com"

_MAIL = HostedConnector("demo_mail", "Mail", "Messages of one demonstration account.")
_MESSAGES = [{"from": "weather@example.com", "subject": "Sunny, with a light breeze"}]


class Mail:
    """The messages of one account, and whether it has been signed in to."""

    def __init__(self) -> None:
        self.is_signed_in = False
        self.was_refused = False

    def connector(self) -> HostedConnector:
        """Return the app with its tool."""
        envelope = {
            "resource_uri": "/connectors/demo_mail/read_inbox",
            "connected_account_email": ACCOUNT_EMAIL,
        }
        inbox = _MAIL.tool(
            "read_inbox",
            "Read the subjects of the messages in the inbox.",
            {},
            READS,
            self._read,
            meta={"link_id": "link_demo_mail", ENVELOPE: envelope},
        )
        return replace(_MAIL, tools=(inbox,))

    def tools_were_listed(self) -> None:
        """Note that somebody came back."""
        self.is_signed_in |= self.was_refused

    async def _read(self, call: Call) -> JsonObject:
        if self.is_signed_in:
            lines = [f"{one['from']}: {one['subject']}" for one in _MESSAGES]
            return text_result("\n".join(lines), {"messages": _MESSAGES})
        self.was_refused = True
        failure = {
            "is_auth_failure": True,
            "auth_reason": "missing_link",
            "connector_id": _MAIL.id,
            "error_code": "UNAUTHORIZED",
            "error_http_status_code": 401,
        }
        refusal = text_result("Mail is not linked to this account.", error=True)
        return {**refusal, "_meta": {ENVELOPE: {"connector_auth_failure": failure}}}
