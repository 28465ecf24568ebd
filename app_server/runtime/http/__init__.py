"""HTTP that several packages share: server-sent events, loopback servers, ports for browsers."""
