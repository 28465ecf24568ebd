"""Tests of app_server/apps/inventory."""
