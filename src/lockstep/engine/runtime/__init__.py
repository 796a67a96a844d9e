"""Running a project: what is decided, evaluated, published, kept and asked, on any compute."""
