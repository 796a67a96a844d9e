"""Programs of other schedulers; each runs in an environment of its own and needs nothing of Lockstep."""
