"""Tests of app_server/peer."""
