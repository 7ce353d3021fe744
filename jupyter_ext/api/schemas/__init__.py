"""Types of request and response bodies. The OpenAPI document and the TypeScript types of the panel are generated from
them."""
