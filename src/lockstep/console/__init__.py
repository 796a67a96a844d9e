"""One server beside a bus: REST and pages for streams, projects, schedules and fleets."""
