"""What is measured of a monitor: servers as processes of their own, and simulated agents."""
