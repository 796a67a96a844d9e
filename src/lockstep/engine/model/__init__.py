"""What a project is: windows, edges and queries, in Python, YAML and XML; its faults, its plan and its picture."""
