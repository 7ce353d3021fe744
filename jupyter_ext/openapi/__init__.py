"""What this server promises over HTTP, as one OpenAPI document that is made of the handlers themselves."""
