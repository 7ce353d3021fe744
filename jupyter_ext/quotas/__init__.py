"""Limits of users and tokens: the fair queue, budgets, the server's database."""
