"""Tests of `app-server exec`."""
