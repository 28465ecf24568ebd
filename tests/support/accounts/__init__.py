"""Accounts that tests sign in with, and their issuer."""
