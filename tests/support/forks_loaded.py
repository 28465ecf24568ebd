"""Imports all that a server may import, and builds what its first turn needs; for forks of it.

Modules that look at the machine when they are imported would look here, once.
"""

import gc
import importlib
import pkgutil

# First, as a server begins with it.
import app_server.cli.entry
import app_server.cli.serve
import protocol
from app_server.server.core import build_first_types

for package in (app_server, protocol):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)

importlib.import_module("tests.support.mcp_peers.sdk_peer")
build_first_types()
# What is never collected stays shared with the forks.
gc.collect()
gc.freeze()
