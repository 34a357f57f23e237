"""From the JSON files of the measurements to tables, pictures and the page."""
