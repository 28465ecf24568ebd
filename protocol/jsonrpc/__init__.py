"""JSON-RPC: how text becomes messages and messages become text, and what errors say."""
