"""Tests of app_server/clients/receiver/router."""
