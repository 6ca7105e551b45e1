"""Where a person's message enters, and where its freshness is kept."""
