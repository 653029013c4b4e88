"""Claim: the parts of an attention score say which sources move the attention when the model is run again."""
