"""The description of the API, made from the table of routes: OpenAPI 3.1, and a page for people."""
