"""How events leave a scheduler for tenants that are no streams: the port, and its ways."""
