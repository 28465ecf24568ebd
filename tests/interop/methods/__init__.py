"""Every method of the protocol, called well and badly, on two servers."""
