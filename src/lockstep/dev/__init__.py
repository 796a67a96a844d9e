"""Real servers on this machine, for tests and for people who want to try a bus: started, killed, ended by pid."""
