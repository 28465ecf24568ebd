"""HTTP that several rooms share: server-sent events, loopback servers, ports for browsers."""
