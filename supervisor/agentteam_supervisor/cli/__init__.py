"""The command `agentteam`: one file per verb or pair of verbs."""
