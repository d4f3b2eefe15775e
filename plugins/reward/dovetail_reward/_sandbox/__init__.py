"""Run Python code that a model wrote, isolated from everything except its input and output.

`outside` starts a process for each run and reads its output; `inside` is the program of that process, which gives up
its privileges (`confine`, `syscalls`) before it reads the code.
"""
