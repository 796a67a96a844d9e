"""The scheduler's benchmark: `lockstep bench schedule`."""
