"""What runs inside an engine's own environment, where Dovetail need not be: each file imports only what is there.

The folder is put on the search path of those environments, so its modules have names that nothing else has.
"""
