"""Spark at the edge: the session, the query that carries work orders, and streams as rows."""
