"""The exec protocol: how the server has work done on another machine. Clients never see it."""
