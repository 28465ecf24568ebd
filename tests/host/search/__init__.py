"""Tests of app_server/host/search."""
