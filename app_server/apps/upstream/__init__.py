"""Clients of the hosted endpoint: sessions, plain requests, retries, bearer tokens."""
