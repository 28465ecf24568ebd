"""Where things are in this repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]

DOCS = ROOT / "docs"

RECORDINGS = ROOT / "tests" / "recordings"
"""What was recorded of other programs."""

MCP_PEER = ROOT / "tests" / "support" / "mcp_peers" / "mcp_peer.py"
"""The MCP server on stdio that tests start; it imports nothing of this project."""
