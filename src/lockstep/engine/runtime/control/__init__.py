"""One engine among those of its project: election, role, reports, status, and what it can be told to do."""
