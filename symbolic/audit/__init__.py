"""Check the papers of Wang & Li equation by equation, and prove the smallest correction of each one that fails."""
