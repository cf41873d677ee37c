"""What answers are measured by."""
