"""How much a server may say at once. Light: no SDK."""

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Of one message: a line of a process, an event, a response over HTTP. Reading one that has very
many small parts takes 0.1 s, in which nothing else runs."""
