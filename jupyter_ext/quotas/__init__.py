"""Limits of users and tokens: the fair queue, the budgets, and the database of the server that holds them."""
