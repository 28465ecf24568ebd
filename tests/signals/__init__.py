"""Tests of app_server/signals."""
