"""Patches of files, without a turn around them."""
