"""Attribution methods: scores of tokens, neurons, heads and streams."""
