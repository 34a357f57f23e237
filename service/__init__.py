"""What both processes need to be services: settings, logs, errors and exit codes, metrics and health, fault points. No database."""
