"""Any agent that speaks the Agent Client Protocol, one process per session."""
