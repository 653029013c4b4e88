"""The graph of one number: its way through the streams, heads and neurons of a model."""
