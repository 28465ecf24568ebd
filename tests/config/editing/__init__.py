"""Tests of app_server/config/editing."""
