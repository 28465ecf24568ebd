"""The port and the variables of a sandbox whose only network is the server's proxy.

Source: docs/tools.md, "Network through a proxy".
"""

from collections.abc import Iterator

from app_server.permissions.network import NetworkPolicy, is_named_local

PORT = 43_128
"""In the sandbox's own network: the same for every command, and none that servers are known by."""

_URL = f"http://127.0.0.1:{PORT}"
_SOCKS_URL = f"socks5h://127.0.0.1:{PORT}"

_HTTP_NAMES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "WS_PROXY", "WSS_PROXY"),
    *("http_proxy", "https_proxy", "ws_proxy", "wss_proxy"),
    *("BUNDLE_HTTP_PROXY", "BUNDLE_HTTPS_PROXY", "DOCKER_HTTP_PROXY", "DOCKER_HTTPS_PROXY"),
    *("NPM_CONFIG_HTTP_PROXY", "NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_PROXY"),
    *("npm_config_http_proxy", "npm_config_https_proxy", "npm_config_proxy"),
    *("PIP_PROXY", "YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"),
)
_SOCKS_NAMES = ("ALL_PROXY", "FTP_PROXY", "all_proxy", "ftp_proxy")
_NO_PROXY_NAMES = (
    *("NO_PROXY", "no_proxy", "BUNDLE_NO_PROXY"),
    *("NPM_CONFIG_NOPROXY", "npm_config_noproxy"),
)

OWN_HOSTS = "localhost,127.0.0.1,::1"
"""Hosts that are the sandbox's own: what a command serves there only it can reach."""


def proxy_variables(policy: NetworkPolicy) -> Iterator[tuple[str, str]]:
    """Give the variables by which programs find the proxy."""
    for name in _HTTP_NAMES:
        yield name, _URL
    for name in _SOCKS_NAMES:
        yield name, _SOCKS_URL if policy.has_socks else _URL
    # Where hosts of this machine may be reached, their names have to lead there.
    is_local = policy.reaches_local or any(map(is_named_local, policy.allowed))
    for name in _NO_PROXY_NAMES:
        yield name, "" if is_local else OWN_HOSTS
    yield "NODE_USE_ENV_PROXY", "1"
    yield "ELECTRON_GET_USE_PROXY", "true"
    yield "CODEX_NETWORK_PROXY_ACTIVE", "1"
    yield "CODEX_NETWORK_ALLOW_LOCAL_BINDING", "1" if policy.reaches_local else "0"
