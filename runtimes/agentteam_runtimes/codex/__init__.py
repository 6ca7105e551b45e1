"""The Codex app-server: its wire, its turns, its driver."""
