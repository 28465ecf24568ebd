"""Pipes of whole messages: WebSocket over TCP or a Unix socket, and lines on stdio.

Knows: sockets, frames, HTTP before the upgrade, close codes.
Does not know: JSON, requests, threads.
"""
