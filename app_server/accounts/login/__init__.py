"""Signing in to ChatGPT: in a browser on this machine, or with a device code on another."""
