"""What the three foreign APIs share."""
