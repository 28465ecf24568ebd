"""Tests of app_server/extensions/contract."""
