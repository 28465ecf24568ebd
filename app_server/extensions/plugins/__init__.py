"""Plugins: folders that bring MCP servers, skills and ids of apps, and where they come from.

Knows: manifests, marketplaces, what is installed below the home folder.
Does not know: clients, turns, the package of MCP, what an app is; ids of apps are texts here.
"""
