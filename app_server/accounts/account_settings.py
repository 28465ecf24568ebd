"""Settings of accounts in config.toml.

Source: docs/config.md, "Accounts".
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from app_server.accounts.account_errors import LoginFailed
from app_server.accounts.credentials import Credentials
from app_server.accounts.store import StoreKind
from app_server.config.values import Config, ConfigView

Method: TypeAlias = Literal["api", "chatgpt"]

CHATGPT_BASE_URL = "https://chatgpt.com/backend-api"


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """Settings of sign-in."""

    store: StoreKind = "file"
    forced_method: Method | None = None
    """The only way to sign in."""
    workspaces: tuple[str, ...] = ()
    """The only ChatGPT workspaces to sign in to; none means any."""

    def permits(self, credentials: Credentials) -> bool:
        """Whether credentials may be used."""
        if self.forced_method is not None and credentials.is_chatgpt != (
            self.forced_method == "chatgpt"
        ):
            return False
        return not credentials.is_chatgpt or self.permits_workspace(credentials.account_id)

    def permits_workspace(self, account_id: str | None) -> bool:
        """Whether a workspace may be signed in to."""
        return not self.workspaces or account_id in self.workspaces

    def require_workspace(self, account_id: str | None) -> None:
        """Refuse a workspace that may not be signed in to.

        Raises:
            LoginFailed: the text is for users.
        """
        if self.permits_workspace(account_id):
            return
        if account_id is None:
            raise LoginFailed(
                "Login is restricted to a specific workspace,"
                " but the token did not include an chatgpt_account_id claim."
            )
        raise LoginFailed(f"Login is restricted to workspace id(s) {', '.join(self.workspaces)}.")


def read_account_settings(config: Config) -> AccountSettings:
    """Read the settings.

    Raises:
        ConfigError: a value has the wrong type.
    """
    view = config.view()
    store = view.choice("cli_auth_credentials_store", ["file", "keyring", "auto", "ephemeral"])
    method = view.choice("forced_login_method", ["chatgpt", "api"])
    return AccountSettings(
        store=cast(StoreKind, store or "file"),
        forced_method=cast(Method | None, method),
        workspaces=_workspaces(view),
    )


def chatgpt_base_url(config: Config) -> str:
    """Return where the hosted backend is, without a slash at its end.

    Raises:
        ConfigError: it is no string.
    """
    return (config.view().string("chatgpt_base_url") or CHATGPT_BASE_URL).rstrip("/")


def _workspaces(view: ConfigView) -> tuple[str, ...]:
    key = "forced_chatgpt_workspace_id"
    if isinstance(view.table.get(key), list):
        return tuple(view.strings(key) or ())
    one = view.string(key)
    return () if one is None or not one.strip() else (one.strip(),)
