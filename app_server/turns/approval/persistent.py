"""Persistent approvals, which outlive their thread: in config.toml, or as an extension says.

Source: docs/mcp.md, "Approval"; docs/extensions.md, "Metadata".
"""

import logging
from dataclasses import dataclass

from app_server.config.editing.file import ConfigFile
from app_server.config.values import NotRecorded
from app_server.extensions.contract.registration import ApprovalPersistence
from app_server.extensions.contract.registry import ExtensionRegistry, UnknownTarget
from app_server.mcp.tools.naming import RawName

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PersistentApprovals:
    """Writes down approvals that outlive their thread."""

    file: ConfigFile
    extensions: ExtensionRegistry

    async def approve(self, tool: RawName, where: ApprovalPersistence | None) -> None:
        """Persist the approval of a tool, for threads to come.

        `where` is what whoever registered the server says; None means the configuration. A server
        that is not configured in a place that lasts is left out, silently.

        Raises:
            NotRecorded
        """
        if where is None:
            await self.file.approve(tool.server, tool.tool)
            return
        try:
            await self.extensions.persist_approval(where)
        except NotRecorded:
            raise
        except UnknownTarget as exc:
            raise NotRecorded(f"nobody writes down approvals for {where.target}") from exc
        except OSError as exc:
            raise NotRecorded(exc.strerror or "it cannot be written") from exc
        except Exception as exc:
            logger.exception("the approval of %s/%s was not written", tool.server, tool.tool)
            raise NotRecorded("it cannot be written") from exc
