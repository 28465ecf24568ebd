"""Conversations byte by byte, and messages held against the committed schema."""
