"""`app-server exec`: one turn from a command line.

Source: docs/exec.md.
"""

from app_server.cli.exec.command import main

__all__ = ["main"]
