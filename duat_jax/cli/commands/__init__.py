"""The commands of `duat`, one file each: their options and their question."""
