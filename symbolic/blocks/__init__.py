"""What one layer computes, and its parameters in Eq. 20."""
