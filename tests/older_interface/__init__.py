"""Tests of app_server/older_interface."""
