"""The scheduler: events and crons of many tenants, fired at the right moment, once."""
