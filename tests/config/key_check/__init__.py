"""Tests of app_server/config/key_check."""
