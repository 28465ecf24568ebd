"""Tests of environments, on this machine and on others."""
