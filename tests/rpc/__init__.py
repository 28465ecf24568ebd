"""Tests of app_server/rpc and app_server/transport."""
