"""Tests of app_server/tools/patches."""
