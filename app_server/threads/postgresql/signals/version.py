"""The number that each write of the ledger of signals changes, and each step of a wake.

Servers look at it to know whether there is anything to read again.
Source: docs/signals.md, "Ledger"; docs/wakes.md, "Several servers".
"""

from app_server.threads.postgresql.database import Connection

BUMP = """
INSERT INTO ledgers AS kept (tenant, version) SELECT current_tenant(), 1"""
"""Tells other servers of a write, with `ON_BUMPED` behind it."""
ON_BUMPED = "ON CONFLICT (tenant) DO UPDATE SET version = kept.version + 1"


def bump(connection: Connection) -> None:
    """Tell other servers of a write, in its transaction and as its last statement."""
    connection.execute(f"{BUMP} {ON_BUMPED}".encode())
