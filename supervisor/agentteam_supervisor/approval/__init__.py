"""Who may say yes: the policy, and the answerers that are asked under it."""
