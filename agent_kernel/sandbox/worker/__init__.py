"""What runs inside the sandbox. Standard library only."""
