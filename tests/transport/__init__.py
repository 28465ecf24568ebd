"""Tests of app_server/transport."""
