"""Which requests the inspector takes: those of its own page, with its token."""

import pytest
from websockets.datastructures import Headers

from app_server.clients.inspector.run import Access

PORT = 6274


@pytest.fixture(name="access")
def _access() -> Access:
    return Access(PORT)


@pytest.mark.parametrize(
    ("hosts", "is_ours"),
    [
        (["127.0.0.1:6274"], True),
        (["LOCALHOST:6274"], True),
        (["127.0.0.1"], False),
        (["127.0.0.1:6275"], False),
        (["attacker.example:6274"], False),
        (["127.0.0.1:6274", "attacker.example"], False),
        ([], False),
    ],
)
def test_the_host_must_be_this_machine_at_our_port(
    access: Access, hosts: list[str], is_ours: bool
) -> None:
    assert access.is_ours(Headers([("Host", host) for host in hosts])) is is_ours


@pytest.mark.parametrize(
    ("origins", "may_connect"),
    [
        (["http://127.0.0.1:6274"], True),
        (["http://localhost:6274"], True),
        (["https://127.0.0.1:6274"], False),
        (["http://127.0.0.1:8000"], False),
        (["http://attacker.example"], False),
        (["null"], False),
        (["http://127.0.0.1:6274", "http://127.0.0.1:6274"], False),
        ([], False),
    ],
)
def test_a_socket_must_come_from_our_own_page(
    access: Access, origins: list[str], may_connect: bool
) -> None:
    header = Headers([("Origin", origin) for origin in origins])
    header["Sec-WebSocket-Protocol"] = f"app-server-inspector, token.{access.token}"
    assert access.may_connect(header) is may_connect


@pytest.mark.parametrize(
    ("offered", "may_connect"),
    [
        ("app-server-inspector, token.{token}", True),
        ("token.{token},app-server-inspector", True),
        ("token.{token}", False),
        ("app-server-inspector", False),
        ("app-server-inspector, token.", False),
        ("app-server-inspector, token.{token}x", False),
        ("app-server-inspector, token.ü", False),
        ("app-server-inspector, token.{token}, token.{token}", False),
        (None, False),
    ],
)
def test_a_socket_must_have_the_token(
    access: Access, offered: str | None, may_connect: bool
) -> None:
    header = Headers({"Origin": f"http://127.0.0.1:{PORT}"})
    if offered is not None:
        header["Sec-WebSocket-Protocol"] = offered.format(token=access.token)
    assert access.may_connect(header) is may_connect


def test_every_run_has_a_token_of_its_own() -> None:
    tokens = {Access(PORT).token for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43
