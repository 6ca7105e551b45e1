"""The service: server, daemon, sessions, approvals, journal, command."""
