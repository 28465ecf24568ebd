"""Texts for who types a command line: help, and advice about wrong calls."""
