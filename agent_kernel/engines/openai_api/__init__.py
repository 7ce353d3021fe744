"""Sends requests to models on servers with OpenAI's API: configuration, requests, answers, retries and errors."""
