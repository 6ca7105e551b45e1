"""The store's history of schemas; Alembic runs it."""
