"""Warnings that peers can cause at will: counted, not logged each.

Source: docs/operations.md, "Log".
"""

import asyncio
import logging
from contextvars import Context
from dataclasses import dataclass
from weakref import WeakKeyDictionary

AGAIN_S = 60.0
"""Between two lines about the same."""


@dataclass(slots=True)
class _Counted:
    """Count since the last log line, and the arguments of the next one."""

    count: int = 0
    arguments: tuple[object, ...] = ()


_counted: WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[tuple[logging.Logger, str], _Counted]
] = WeakKeyDictionary()


def warn_counted(
    logger: logging.Logger, message: str, *arguments: object, again_s: float = AGAIN_S
) -> None:
    """Log a warning; if it comes again within `again_s` seconds, one line then says how often.

    `message` is one of a few constants, as it is kept; `arguments` are those of the last time.
    To be called on the event loop.
    """
    loop = asyncio.get_running_loop()
    of_loop = _counted.setdefault(loop, {})
    counted = of_loop.get((logger, message))
    if counted is None:
        of_loop[logger, message] = _Counted()
        logger.warning(message, *arguments)
        # Not in the context of a request that ends before.
        loop.call_later(again_s, _log_count, loop, logger, message, again_s, context=Context())
    else:
        counted.count += 1
        counted.arguments = arguments


def _log_count(
    loop: asyncio.AbstractEventLoop, logger: logging.Logger, message: str, again_s: float
) -> None:
    counted = _counted[loop].pop((logger, message))
    if counted.count:
        _counted[loop][logger, message] = _Counted()
        logger.warning(
            f"{message}; %d times in %d s", *counted.arguments, counted.count, round(again_s)
        )
        loop.call_later(again_s, _log_count, loop, logger, message, again_s, context=Context())
