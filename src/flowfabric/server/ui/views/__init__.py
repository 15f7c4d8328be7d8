"""What a template is given: frozen values, made from records by pure functions, without HTML."""
