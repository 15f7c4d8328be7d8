"""The routes: a table of data, from which dispatch, OpenAPI and the reference page are made."""
