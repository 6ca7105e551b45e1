"""The Toy agent as a runtime of AgentTeam."""
