"""The Agent Client Protocol, spoken by the server itself: a client of its threads beside others.

Knows: messages of ACP, and the requests, events and questions of the app-server. Does not know:
sockets, and what is behind a method.
Source: docs/acp.md; https://agentclientprotocol.com.
"""
