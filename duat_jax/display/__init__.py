"""Tables and pictures: console output, colours, labels."""
