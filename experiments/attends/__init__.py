"""Which sources move an attention when they are replaced and the model is run again."""
