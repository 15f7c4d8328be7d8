"""The dashboard: pages of HTML, made here, from what every client may ask for.

A page is declared (`pages.Page`), asks operations as any route does (`reading/`), turns what it is
told into a frozen value (`views/`) and hands it to a template (`templates/`). Nothing here knows a
store. How to add a page: `docs/design/040-dashboard.md`.
"""
