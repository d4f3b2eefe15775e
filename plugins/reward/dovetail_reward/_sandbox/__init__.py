"""Run Python that a model wrote, kept from everything but its input and its output.

`outside` starts a process for each run and reads what it prints; `inside` is the program of that process, which gives
up its rights (`confine`, `syscalls`) before it touches the code.
"""
