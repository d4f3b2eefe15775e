"""The servers are programs, and need their libraries."""

collect_ignore = ["server.py", "environment_server.py"]
