"""Tests of app_server/tools/dynamic."""
