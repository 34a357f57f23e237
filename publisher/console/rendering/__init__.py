"""How the console shows or hides values.

- html.py: the templates, and how they write numbers, times and sizes.
- masking.py: hides events, and texts that quote them, unless `[console] show_values` is set.
- schemas.py: decodes values with a schema.
"""
