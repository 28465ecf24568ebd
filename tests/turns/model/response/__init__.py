"""Tests of app_server/turns/model/response."""
