"""Tests of app_server/rpc/hub."""
