"""What the paper analyses beside accuracy."""
