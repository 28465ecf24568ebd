"""Sandbox policy in effect for a thread, made of its settings; sandboxes and tools go by it."""
