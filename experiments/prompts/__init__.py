"""One text after several prompts: what moves, and what of it carries the task."""
