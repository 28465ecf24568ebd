"""Tests of app_server/rpc/older_interface."""
