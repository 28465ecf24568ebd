"""Tests of app_server/accounts."""
