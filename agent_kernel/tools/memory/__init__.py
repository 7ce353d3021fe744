"""Tools with which the model searches the user's earlier conversations."""
