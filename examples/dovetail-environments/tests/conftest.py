"""The server is a program, and needs its library."""

collect_ignore = ["server.py"]
