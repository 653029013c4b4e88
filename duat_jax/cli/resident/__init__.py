"""A process that stays after a command and runs the following ones, so that JAX and a model are loaded once.

The first command's process forks before JAX is imported: the child runs the command and stays, the parent waits for it.
Later commands send arguments, environment and file descriptors to the child through a Unix socket in a folder that only
the user can open; one command after another is run. A command runs by itself wherever the child can't run it.
"""
