"""Where deliveries reach this machine: the link, the roster and what they need."""
