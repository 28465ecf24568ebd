"""ChatGPT apps, also called connectors, served to the rest as ordinary loopback MCP servers.

Knows: the hosted endpoint and its annotations, the extension contract, config.toml.
Does not know: rpc, handlers, turns, threads, and the package of MCP; it is imported late.
In: the tools that the endpoint lists, settings, credentials.  Out: registrations and answers.
"""
