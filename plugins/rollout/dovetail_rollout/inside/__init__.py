"""What runs inside an engine's own environment, which need not have Dovetail: each file imports only what is there.

The folder is put on the search path of those environments, so its modules have unique names.
"""
