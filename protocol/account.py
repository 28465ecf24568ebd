"""account/*: who is signed in."""

from protocol.model import JsonObject, WireModel, experimental


class GetAccountParams(WireModel):
    """Ask who is signed in."""

    refresh_token: bool = False


class GetAccountResponse(WireModel):
    """The account, or null, and whether the chosen provider needs one."""

    account: JsonObject | None = None
    user_id: str | None = None
    requires_openai_auth: bool
    workspace_routing: JsonObject | None = experimental()
