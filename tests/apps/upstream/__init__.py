"""Tests of app_server/apps/upstream."""
