"""Secants: the exact difference of a program's results between two inputs."""
