"""Commands, sandboxes, proxies, Git servers and exec servers for tests."""
