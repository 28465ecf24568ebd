"""The elicitation for a call that the endpoint refuses until the user signs in to the app.

The address is computed, never taken from upstream; the user goes there, and calls again.
Source: docs/apps.md, "Signing in".
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

from app_server.apps.inventory.annotations import ENVELOPE
from app_server.apps.inventory.inventory import Connector
from app_server.apps.inventory.names import install_url
from app_server.apps.routes.backing import DownstreamPeer
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

ERROR_CODE = "codex/errorCode"

_FAILURE = "connector_auth_failure"
_TEXTS = ("auth_reason", "link_id", "error_code", "error_action")
_MESSAGES = {
    "missing_link": "Sign in to {name} on ChatGPT before it can be used here.",
    "oauth_upgrade_required": "Reconnect {name} on ChatGPT to grant it further permissions.",
    "reauthentication_required": "Reconnect {name} on ChatGPT to restore access to it.",
}
_OTHERWISE = "Sign in to {name} on ChatGPT to go on."
_CALL_AGAIN = "The sign-in to {name} was accepted. Call the tool again."

Refresh = Callable[[], Awaitable[object]]
"""Fetches the inventory anew and publishes what comes of it."""


@dataclass(frozen=True, slots=True)
class AuthFailure:
    """Why a call needs a sign-in: the members that the endpoint gave, of the types they have."""

    reason: str | None
    error_code: str | None
    details: JsonObject

    @classmethod
    def in_result(cls, result: JsonObject, connector: Connector) -> "AuthFailure | None":
        """Find the link in a result of a tool of this connector; those of others are ignored."""
        if result.get("isError") is not True:
            return None
        given = _object(_object(_object(result.get("_meta")).get(ENVELOPE)).get(_FAILURE))
        if given.get("is_auth_failure") is not True:
            return None
        named = given.get("connector_id")
        if named is not None and named != connector.id:
            return None
        details = {key: given[key] for key in _TEXTS if isinstance(given.get(key), str)}
        status = given.get("error_http_status_code")
        if isinstance(status, int) and not isinstance(status, bool):
            details["error_http_status_code"] = status
        return cls(details.get("auth_reason"), details.get("error_code"), details)


async def offer_sign_in(
    failure: AuthFailure,
    result: JsonObject,
    connector: Connector,
    call_id: str,
    peer: DownstreamPeer,
    refresh: Refresh,
    refresh_s: float,
) -> JsonObject:
    """Ask the user to sign in, if the peer can ask that; gives the result of the call.

    Once the user has accepted, the inventory is fetched anew, and the result is one that asks for
    the call to be made again. Otherwise it is the one that came. `refresh_s` bounds the wait
    for the inventory.
    """
    answer = await peer.elicit(_question(failure, connector, call_id))
    if answer.get("action") != "accept":
        return result
    await _refreshed(refresh, refresh_s)
    again = {"type": "text", "text": _CALL_AGAIN.format(name=connector.name)}
    kept: JsonObject = {key: result[key] for key in ("structuredContent", "_meta") if key in result}
    return {"content": [again], "isError": True, **kept}


def _question(failure: AuthFailure, connector: Connector, call_id: str) -> JsonObject:
    url = install_url(connector.name, connector.id)
    message = _MESSAGES.get(failure.reason or "", _OTHERWISE).format(name=connector.name)
    said = {
        "is_auth_failure": True,
        "connector_id": connector.id,
        "connector_name": connector.name,
        "install_url": url,
        **failure.details,
    }
    return {
        "mode": "url",
        "message": message,
        "url": url,
        "elicitationId": f"codex_apps_auth_{call_id}",
        "_meta": {ENVELOPE: {_FAILURE: said}},
    }


async def _refreshed(refresh: Refresh, refresh_s: float) -> None:
    with anyio.move_on_after(refresh_s) as limit:
        try:
            await refresh()
        except Exception:
            # The user has signed in all the same: the next refresh finds it.
            logger.warning("no new inventory after a sign-in", exc_info=True)
    if limit.cancelled_caught:
        logger.warning("no new inventory after a sign-in within %g s", refresh_s)


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
