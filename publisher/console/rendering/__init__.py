"""How values are shown, or hidden.

- html.py: the templates, and how they write numbers, times and sizes.
- masking.py: hides events, and what quotes them, unless `[console] show_values` is set.
- schemas.py: decodes values with a schema.
"""
