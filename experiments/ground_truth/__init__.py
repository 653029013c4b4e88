"""Attribution methods on compiled programs whose circuits are known."""
