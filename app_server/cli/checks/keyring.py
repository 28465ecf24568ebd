"""Whether the place for credentials that the configuration asks for can be used."""

from app_server.accounts.settings import read_account_settings
from app_server.cli.checks.machine import Machine
from app_server.config.values import Config, ConfigError
from app_server.runtime.files.secret import StoreFailed, keyring_failures, load_keyring
from app_server.threads.repair import Check

KEYS = ("cli_auth_credentials_store", "mcp_oauth_credentials_store")
PROBE = ("app-server doctor", "nothing is kept here")
"""Service and name of an entry that nobody makes."""


def check_keyring(machine: Machine) -> Check:
    """Look for an entry that is not there; an `auto` store does without a keyring."""
    check = Check("keyring")
    try:
        stores = _stores(machine.read_files().override(machine.overrides))
    except ConfigError as exc:
        check.add("error", f"unknown: {str(exc).strip()}")
        check.advise("correct that setting, then look again")
        return check
    needed = [key for key in KEYS if stores[key] == "keyring"]
    wanted = [key for key in KEYS if stores[key] in ("keyring", "auto")]
    if not wanted:
        check.message = "credentials are kept in files"
        return check
    problem = _problem()
    if problem is None:
        check.message = f"the keyring works, for {' and '.join(wanted)}"
    elif not needed:
        check.message = f"credentials are kept in files: {problem}"
    else:
        check.add("error", f'{problem}, and {" and ".join(needed)} = "keyring" needs one')
        check.advise(
            "install the extra (pip install 'app-server[keyring]') and run a keyring service, or "
            + ", ".join(f'set {key} = "file"' for key in needed)
        )
    return check


def _stores(config: Config) -> dict[str, str]:
    mcp = config.view().string(KEYS[1])
    return {KEYS[0]: read_account_settings(config).store, KEYS[1]: mcp or "auto"}


def _problem() -> str | None:
    try:
        with keyring_failures(quiet=False):
            ring = load_keyring()
            if ring is None:
                return "the Python package `keyring` is not installed"
            ring.get_password(*PROBE)
    except StoreFailed as exc:
        return str(exc)
    return None
